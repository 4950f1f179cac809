"""Suggestions for misspelt names."""

from collections.abc import Iterable

MIN_SIMILARITY, MIN_SIMILARITY_IF_SHORT = 0.75, 0.66
"""Minimum similarity, from 0 to 1. Below it a suggestion misleads more often than it helps."""
SHORT_CHARACTERS = 4
"""One letter is a large part of a short name. Two that are swapped are accepted, and one that differs, except the
first: `get` is not `set`."""


def find_closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name, if one is similar enough."""
    from difflib import get_close_matches  # needed for errors only

    spelt = {other.casefold(): other for other in known}
    wanted = name.casefold()[:200]
    if near := get_close_matches(wanted, spelt, n=1, cutoff=MIN_SIMILARITY):
        return spelt[near[0]]
    if not wanted or len(wanted) > SHORT_CHARACTERS:
        return None
    alike = {
        each: other for each, other in spelt.items() if each[:1] == wanted[0] or sorted(each) == sorted(wanted)
    }
    near = get_close_matches(wanted, alike, n=1, cutoff=MIN_SIMILARITY_IF_SHORT)
    return alike[near[0]] if near else None
