"""The known name that a misspelt one probably means."""

from collections.abc import Iterable

CLOSE_ENOUGH, CLOSE_ENOUGH_IF_SHORT = 0.75, 0.66
"""Below this likeness (from 0 to 1) a suggestion misleads more often than it helps. One letter of a short name is a
larger part of it."""
SHORT_CHARACTERS = 4


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a name, if one is close."""
    from difflib import get_close_matches  # needed for errors only

    spelt = {other.casefold(): other for other in known}
    near = get_close_matches(
        name.casefold()[:200],
        spelt,
        n=1,
        cutoff=CLOSE_ENOUGH_IF_SHORT if len(name) <= SHORT_CHARACTERS else CLOSE_ENOUGH,
    )
    return spelt[near[0]] if near else None
