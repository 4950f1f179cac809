"""Finds many forms in a text that grows, in one pass.

Only the first characters of each form, its head, are searched for everywhere; a form is compared where its head
stands. Heads are few and short, so the search is small however long the secrets are."""

import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ahocorasick_rs import AhoCorasick, Implementation

HEAD = 8
_FAST_BELOW = 4000
"""So many heads are searched with a full table: faster, and larger."""
_WORD = re.compile(r"\S+")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Form(NamedTuple):
    text: str
    name: str
    """Of the secret that it gives away."""


class Find(NamedTuple):
    start: int
    end: int
    form: Form


class Head(NamedTuple):
    """Where a form may stand."""

    start: int
    forms: tuple[Form, ...]
    """The longest first."""


class Index:
    """The forms by their heads. Frozen; shared by all readings."""

    def __init__(self, forms: Iterable[Form]) -> None:
        by_head: dict[str, list[Form]] = {}
        for form in forms:
            by_head.setdefault(form.text[:HEAD], []).append(form)
        for same in by_head.values():
            same.sort(key=lambda form: -len(form.text))
        self._forms = [tuple(same) for same in by_head.values()]
        self._beginnings = frozenset(head[:size] for head in by_head for size in range(1, len(head)))
        self._heads = AhoCorasick(
            [_searchable(head) for head in by_head],
            implementation=Implementation.DFA if len(by_head) < _FAST_BELOW else None,
        )
        self._shortest = min(map(len, by_head), default=0)
        self.longest = max((len(same[0].text) for same in self._forms), default=0)

    def heads(self, text: str, known: int) -> list[Head]:
        """The heads that end after what is known already, which had been looked at."""
        skip = max(0, known - HEAD + 1)
        if len(text) - skip < self._shortest:
            return []
        matches = self._heads.find_matches_as_indexes(_searchable(text[skip:] if skip else text), overlapping=True)
        return [Head(start + skip, self._forms[which]) for which, start, end in matches if end + skip > known]

    def begun(self, text: str, since: int = 0) -> int:
        """Where the end of the text may be the beginning of a head; its length where it is none."""
        size = len(text)
        for start in range(max(since, size - HEAD + 1), size):
            if text[start:] in self._beginnings:
                return start
        return size


class Reading(Protocol):
    """One way to read a text that grows at its end and is let go at its beginning."""

    @property
    def is_idle(self) -> bool: ...

    def read(self, text: str, piece: str) -> tuple[list[Find], int]:
        """The new finds in a text that ends with this piece, and from where on it may be the beginning of more."""
        ...

    def let_go(self, before: str, held: str) -> None:
        """The text begins after this now; that is what is left of it."""
        ...


class PlainReading:
    """The text as it is."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: list[Head] = []
        """Those that a longer form may still follow."""

    @property
    def is_idle(self) -> bool:
        return not self._index.longest

    def read(self, text: str, piece: str) -> tuple[list[Find], int]:
        finds: list[Find] = []
        heads = self._open + self._index.heads(text, len(text) - len(piece))
        self._open = [head for head in heads if self._follow(head, text, finds)]
        begun = self._index.begun(text)
        return finds, min([begun, *(head.start for head in self._open)])

    def _follow(self, head: Head, text: str, finds: list[Find]) -> bool:
        """Note the longest form that stands there; say whether a longer one may come."""
        left = len(text) - head.start
        is_open = False
        for form in head.forms:
            if len(form.text) > left:
                is_open = is_open or form.text.startswith(text[head.start :])
            elif text.startswith(form.text, head.start):
                finds.append(Find(head.start, head.start + len(form.text), form))
                break
        return is_open

    def let_go(self, before: str, held: str) -> None:
        if before:
            self._open = [Head(head.start - len(before), head.forms) for head in self._open]


class _Place(NamedTuple):
    """A head in the text without its white space, and where that is in the text."""

    head: Head
    start: int


class BrokenReading:
    """The text without its white space: encodings that were wrapped or set in columns are whole in it.

    A form may take up to STRETCH times its length, so that what is held back has an end."""

    STRETCH = 2

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: list[_Place] = []
        self._dense = ""

    @property
    def is_idle(self) -> bool:
        return not self._index.longest

    def read(self, text: str, piece: str) -> tuple[list[Find], int]:
        known = len(self._dense)
        self._dense += "".join(piece.split())
        finds: list[Find] = []
        heads = self._index.heads(self._dense, known)
        places = self._open + (self._placed(heads, text) if heads else [])
        self._open = [place for place in places if self._follow(place, text, finds)]
        return finds, min([self._begun(text), *(place.start for place in self._open)])

    def _placed(self, heads: list[Head], text: str) -> list[_Place]:
        """Where heads of the dense text are in the text."""
        heads.sort()
        places: list[_Place] = []
        ended = 0
        words = _WORD.finditer(text)
        word = next(words)
        for head in heads:
            while head.start >= ended + len(word[0]):
                ended += len(word[0])
                word = next(words)
            places.append(_Place(head, word.start() + head.start - ended))
        return places

    def _follow(self, place: _Place, text: str, finds: list[Find]) -> bool:
        head, taken = place.head, len(text) - place.start
        left = len(self._dense) - head.start
        is_open = False
        for form in head.forms:
            room = len(form.text) * self.STRETCH
            if len(form.text) > left:
                is_open = is_open or (taken < room and form.text.startswith(self._dense[head.start :]))
            elif self._dense.startswith(form.text, head.start):
                end = _end_of(text, place.start, len(form.text), place.start + room)
                if end is not None:
                    finds.append(Find(place.start, end, form))
                    break
        return is_open

    def _begun(self, text: str) -> int:
        """Where the end may be the beginning of a head, white space left out."""
        start = -1
        while (start := self._index.begun(self._dense, start + 1)) < len(self._dense):
            at = _start_of(text, len(self._dense) - start)
            if len(text) - at < self._index.longest * self.STRETCH:
                return at
        return len(text)

    def let_go(self, before: str, held: str) -> None:
        if not before:
            return
        dense = _density(before) if len(before) < len(held) else len(self._dense) - _density(held)
        self._dense = self._dense[dense:]
        self._open = [
            _Place(Head(place.head.start - dense, place.head.forms), place.start - len(before))
            for place in self._open
        ]


def _density(text: str) -> int:
    """How many characters it has, white space not counted."""
    return sum(map(len, text.split()))


def _end_of(text: str, start: int, size: int, limit: int) -> int | None:
    """Where so many characters from `start` on end, white space not counted. None: not before the limit, and no
    further is looked: a word may be as long as the text."""
    for word in _WORD.finditer(text, start, limit):
        if len(word[0]) >= size:
            return word.start() + size
        size -= len(word[0])
    return None


def _start_of(text: str, size: int) -> int:
    """Where the last so many characters begin, white space not counted."""
    at = len(text)
    while size:
        at -= 1
        size -= not text[at].isspace()
    return at


def _searchable(text: str) -> str:
    """The text, as long as it was, without what cannot be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
