"""Completion of commands and file names in the message."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

MAX_SHOWN = 8
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")


class Suggestion(NamedTuple):
    """A text that completes what was typed."""

    text: str
    help: str = ""


class Completion(NamedTuple):
    """The suggestions for the text before the cursor, and how much of it they replace."""

    typed: str
    suggestions: Sequence[Suggestion]


def find_mention(before: str) -> str | None:
    """Return what was typed after an `@` at the cursor."""
    found = _MENTION.search(before)
    return None if found is None else found[1]


def quote_mention(name: str) -> str:
    """Return a file name as it is written after an `@`: in quotes if it contains spaces."""
    return f'"{name}"' if any(map(str.isspace, name)) else name


def _fold(text: str) -> str:
    """Return a text in lower case and without accents, which are hard to type on some keyboards."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in parts if not unicodedata.combining(c))


def rank(query: str, names: Sequence[str], limit: int = MAX_SHOWN) -> list[str]:
    """Return the names that contain the letters of a query in order, the best first."""
    if not query:
        return sorted(names, key=lambda name: (name.count("/"), name))[:limit]
    wanted = _fold(query)
    scored: list[tuple[tuple[int, int, int, str], str]] = []
    for name in names:
        score = _score(wanted, _fold(name))
        if score is not None:
            scored.append(((*score, name), name))
    scored.sort()
    return [name for _, name in scored[:limit]]


def _score(query: str, name: str) -> tuple[int, int, int] | None:
    """Return how well a name fits, the lowest best; None if it does not."""
    base = name.rpartition("/")[2]
    if base.startswith(query):
        return 0, len(base), len(name)
    if (at := base.find(query)) >= 0:
        return 1, at, len(name)
    if (at := name.find(query)) >= 0:
        return 2, at, len(name)
    position = gaps = 0
    for letter in query:
        found = name.find(letter, position)
        if found < 0:
            return None
        gaps += found - position
        position = found + 1
    return 3, gaps, len(name)
