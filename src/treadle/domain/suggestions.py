"""Suggestions for misspelt names."""

from collections.abc import Iterable

MIN_SIMILARITY, MIN_SIMILARITY_IF_SHORT = 0.75, 0.66
"""Minimum similarity, from 0 to 1. Below it a suggestion misleads more often than it helps. One letter is a larger
part of a short name."""
SHORT_CHARACTERS = 4


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name, if one is similar enough."""
    from difflib import get_close_matches  # needed for errors only

    spelt = {other.casefold(): other for other in known}
    near = get_close_matches(
        name.casefold()[:200],
        spelt,
        n=1,
        cutoff=MIN_SIMILARITY_IF_SHORT if len(name) <= SHORT_CHARACTERS else MIN_SIMILARITY,
    )
    return spelt[near[0]] if near else None
