"""Search engines for the web."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class SearchResult(Struct, frozen=True):
    """A page that an engine found. All of it is text from the web."""

    title: str
    url: str
    passage: str


class SearchFailed(Exception):
    """The engine gave no results. The message says what happened and what to do, without the key."""


class SearchEngine(Protocol):
    async def search(self, query: str, count: int) -> Sequence[SearchResult]:
        """Return at most `count` results, the best first. Raise SearchFailed if the engine does not answer."""
        ...
