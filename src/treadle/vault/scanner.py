"""Finds many forms in a text that grows, in one pass.

Only the first characters of each form, its head, are searched for everywhere; a form is compared where its head
stands. Heads are few and short, so the search is small however long the secrets are."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ahocorasick_rs import AhoCorasick, Implementation

from treadle.vault.canonical import LONGEST_ESCAPE, CanonicalToken, canonical, finished, is_special, tokens

HEAD = 8
_FAST_BELOW = 4000
"""So many heads are searched with a full table: faster, and larger."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]?={0,2}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Form(NamedTuple):
    text: str
    name: str
    """Of the secret that it gives away."""
    has_tail: bool = False
    """One more character of base64, and padding, may hold the rest of its bits."""


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
        beginnings = self._beginnings
        for start in range(max(since, size - HEAD + 1), size):
            if text[start:] in beginnings:
                return start
        return size


class TextReading(Protocol):
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
        heads = self._index.heads(text, len(text) - len(piece))
        if not heads and not self._open:
            return [], self._index.begun(text)
        finds: list[Find] = []
        heads = self._open + heads
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
                end = head.start + len(form.text)
                size, may_go_on = tail_of(text, end) if form.has_tail else (0, False)
                finds.append(Find(head.start, end + size, form))
                is_open = is_open or may_go_on
                break
        return is_open

    def let_go(self, before: str, held: str) -> None:
        if before and self._open:
            self._open = [Head(head.start - len(before), head.forms) for head in self._open]


class _Place(NamedTuple):
    """A head in the canonical text, and where that is in the window."""

    head: Head
    start: int


class DecodedReading:
    """The text in its canonical form: escapes, wrapped lines, colours and invisible characters hide nothing there.

    Keeps a window of the text from the start of an escape or a character on, which may be a little before what the
    stream holds. A form may take up to STRETCH times its length, so that what is held back has an end."""

    STRETCH = 16
    CHUNK = 4096

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: list[_Place] = []
        self._window = ""
        self._lead: int = 0
        """Characters of the window before the text that the stream holds."""
        self._canonical = ""
        self._decoded: int = 0
        """Up to where the window is decoded: then comes an escape that is not finished."""
        self._plain_from: int = 0
        """From here on nothing in the window was decoded but white space."""
        self._known_places: list[tuple[int, int]] = [(0, 0)]
        """Places in the canonical text, and the same in the window."""

    @property
    def is_idle(self) -> bool:
        return not self._index.longest

    def read(self, text: str, piece: str) -> tuple[list[Find], int]:
        known = len(self._canonical)
        self._window += piece
        self._decode()
        heads = self._index.heads(self._canonical, known)
        lead = self._lead
        if not heads and not self._open:
            return [], max(0, min(self._begun(), self._decoded) - lead)
        finds: list[Find] = []
        places = self._open + (self._placed(heads) if heads else [])
        self._open = [place for place in places if self._follow(place, finds)]
        begun = min([self._begun(), self._decoded, *(place.start for place in self._open)])
        return [Find(max(0, start - lead), end - lead, form) for start, end, form in finds], max(0, begun - lead)

    def _decode(self) -> None:
        """Decode what has come, in chunks that end where nothing that follows changes them."""
        end = len(self._window)
        while self._decoded < end:
            chunk = self._window[self._decoded : self._decoded + self.CHUNK]
            may_decode = is_special(chunk)
            done = finished(chunk) if may_decode else len(chunk)
            if not done:
                if len(chunk) < self.CHUNK:
                    return
                done = len(chunk)
            taken = chunk[:done]
            if may_decode and is_special(taken):
                self._note_place()
                self._canonical += canonical(taken)
                self._decoded += done
                self._plain_from = self._decoded
                self._note_place()
            else:
                self._canonical += "".join(taken.split())
                self._decoded += done
            if self._known_places[-1][1] + self.CHUNK <= self._decoded:
                self._note_place()
            if done < len(chunk) and self._decoded + len(chunk) - done >= end:
                return

    def _note_place(self) -> None:
        if self._known_places[-1][1] < self._decoded:
            self._known_places.append((len(self._canonical), self._decoded))

    def _tokens(self, start: int, end: int) -> Iterator[CanonicalToken]:
        """The tokens of a part of the window, cut where it was decoded in parts."""
        at = start
        for _, place in self._known_places:
            if at < place < end:
                yield from tokens(self._window, at, place)
                at = place
        yield from tokens(self._window, at, end)

    def _placed(self, heads: list[Head]) -> list[_Place]:
        """Where heads of the canonical text are in the window, in one pass."""
        heads.sort()
        places: list[_Place] = []
        size, at = self._known_before(heads[0].start)
        rest = self._tokens(at, self._decoded)
        token = next(rest)
        for head in heads:
            while size + token.size <= head.start:
                size += token.size
                token = next(rest)
            is_escape = token.end - token.start != token.size
            places.append(_Place(head, token.start if is_escape else token.start + head.start - size))
        return places

    def _known_before(self, index: int) -> tuple[int, int]:
        return self._known_places[bisect_right(self._known_places, (index, len(self._window))) - 1]

    def _place_of(self, index: int) -> int:
        """Where a character near the end of the canonical text is in the window."""
        left, place = len(self._canonical) - index, self._decoded
        while left and place > self._plain_from:
            place -= 1
            left -= not self._window[place].isspace()
        if not left:
            return place
        size, at = self._known_before(index)
        for token in self._tokens(at, self._decoded):
            if size + token.size > index:
                is_escape = token.end - token.start != token.size
                return token.start if is_escape else token.start + index - size
            size += token.size
        return self._decoded

    def _follow(self, place: _Place, finds: list[Find]) -> bool:
        """Note the longest form that stands there; say whether more of it, or a longer one, may come."""
        head, taken = place.head, len(self._window) - place.start
        left = len(self._canonical) - head.start
        is_open = False
        for form in head.forms:
            room = len(form.text) * self.STRETCH
            if len(form.text) > left:
                is_open = is_open or (taken < room and form.text.startswith(self._canonical[head.start :]))
            elif self._canonical.startswith(form.text, head.start):
                after = head.start + len(form.text)
                size, may_go_on = tail_of(self._canonical, after) if form.has_tail else (0, False)
                end = self._end_of(place.start, len(form.text) + size, place.start + room)
                if end is not None:
                    finds.append(Find(place.start, end, form))
                    is_open = is_open or may_go_on
                    break
        return is_open

    def _end_of(self, start: int, size: int, limit: int) -> int | None:
        """Where so many canonical characters from `start` on end; None: not before the limit."""
        for token in self._tokens(start, min(self._decoded, limit)):
            if token.size >= size:
                is_escape = token.end - token.start != token.size
                return token.end if is_escape else token.start + size
            size -= token.size
        return None

    def _begun(self) -> int:
        """Where the end may be the beginning of a head."""
        start = self._index.begun(self._canonical)
        while start < len(self._canonical):
            at = self._place_of(start)
            if len(self._window) - at < self._index.longest * self.STRETCH:
                return at
            start = self._index.begun(self._canonical, start + 1)
        return len(self._window)

    def let_go(self, before: str, held: str) -> None:
        """Move the window to the last place that is known at or before the start of what is held."""
        if not before:
            return
        target = self._lead + len(before)
        if target >= len(self._window) and not self._open:
            self._window = self._canonical = ""
            self._decoded = self._plain_from = self._lead = 0
            self._known_places = [(0, 0)]
            return
        if target >= self._decoded:
            cut, size = self._decoded, len(self._canonical)
        elif target >= self._plain_from:
            cut, size = target, len(self._canonical) - _density(self._window[target : self._decoded])
        elif target < self.CHUNK // 4:
            self._lead = target
            return
        else:
            size, cut = self._cut_before(target)
        self._window = self._window[cut:]
        self._canonical = self._canonical[size:]
        self._decoded -= cut
        self._lead = target - cut
        if self._open:
            self._open = [
                _Place(Head(place.head.start - size, place.head.forms), place.start - cut) for place in self._open
            ]
        self._plain_from = max(0, self._plain_from - cut)
        if len(self._known_places) > 1:
            after = [(known - size, place - cut) for known, place in self._known_places if place > cut]
            self._known_places = [(0, 0), *after]

    def _cut_before(self, target: int) -> tuple[int, int]:
        """The last token that starts at or before a place, as places in the canonical text and in the window."""
        size, at = next(known for known in reversed(self._known_places) if known[1] <= target)
        for token in self._tokens(at, min(self._decoded, target + LONGEST_ESCAPE)):
            if token.end > target:
                if token.start > target:  # it may be in the middle of something that is dropped
                    return size, at
                is_escape = token.end - token.start != token.size
                return (size, token.start) if is_escape else (size + target - token.start, target)
            size, at = size + token.size, token.end
        return size, at


def _density(text: str) -> int:
    """How many characters it has, white space not counted."""
    return sum(map(len, text.split()))


def tail_of(text: str, at: int) -> tuple[int, bool]:
    """Return how long the rest of a base64 form is, and whether more of it may come."""
    found = _BASE64.match(text, at)
    size = 0 if found is None else len(found[0])
    return size, at + size == len(text) and size < 3


def _searchable(text: str) -> str:
    """The text, as long as it was, without what cannot be written in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
