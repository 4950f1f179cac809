"""Finds many forms in a growing text in one pass.

Only the first characters of each form, its head, are searched for everywhere. A form is compared where its head
occurs. Heads are few and short, so the search is small however long the secrets are."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ahocorasick_rs import AhoCorasick, Implementation

from treadle.vault.canonical import (
    MAX_ESCAPE_CHARS,
    CanonicalToken,
    canonicalize,
    find_stable_end,
    fold_case,
    is_special,
    iterate_tokens,
)

HEAD_CHARS = 8
_MAX_DFA_HEADS = 4000
"""Below this number of heads, a full table is used, which is faster and larger."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]?={0,2}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Form(NamedTuple):
    text: str
    name: str
    """The secret that the form reveals."""
    has_tail: bool = False
    """One more base64 character and padding may hold the rest of its bits."""


class Find(NamedTuple):
    start: int
    end: int
    form: Form


class Head(NamedTuple):
    """A position where a form may start."""

    start: int
    forms: tuple[Form, ...]
    """Sorted by length, longest first."""


class Index:
    """The forms by their heads. Immutable and shared by all readings."""

    def __init__(self, forms: Iterable[Form]) -> None:
        by_head: dict[str, list[Form]] = {}
        for form in forms:
            by_head.setdefault(form.text[:HEAD_CHARS], []).append(form)
        for same in by_head.values():
            same.sort(key=lambda form: -len(form.text))
        self._forms = [tuple(same) for same in by_head.values()]
        self._beginnings = frozenset(head[:size] for head in by_head for size in range(1, len(head)))
        self._heads = AhoCorasick(
            [_replace_surrogates(head) for head in by_head],
            implementation=Implementation.DFA if len(by_head) < _MAX_DFA_HEADS else None,
        )
        self._shortest = min(map(len, by_head), default=0)
        self.longest = max((len(same[0].text) for same in self._forms), default=0)

    def heads(self, text: str, known: int) -> list[Head]:
        """Return the heads that end after the first `known` characters, which were searched before."""
        skip = max(0, known - HEAD_CHARS + 1)
        if len(text) - skip < self._shortest:
            return []
        matches = self._heads.find_matches_as_indexes(
            _replace_surrogates(text[skip:] if skip else text), overlapping=True
        )
        return [Head(start + skip, self._forms[which]) for which, start, end in matches if end + skip > known]

    def find_partial_head(self, text: str, since: int = 0) -> int:
        """Return where the end of the text may be the beginning of a head, or its length."""
        size = len(text)
        beginnings = self._beginnings
        for start in range(max(since, size - HEAD_CHARS + 1), size):
            if text[start:] in beginnings:
                return start
        return size


class TextReading(Protocol):
    """One way to read a text that grows at its end and shrinks at its beginning."""

    @property
    def is_idle(self) -> bool: ...

    def read(self, text: str, piece: str, is_last: bool = False) -> tuple[list[Find], int]:
        """Return the new finds in a text that ends with this piece, and from where on more may begin. `is_last`:
        nothing follows, so an escape at the end is complete."""
        ...

    def discard(self, before: str, held: str) -> None:
        """Drop `before` from the beginning of the text; `held` is the rest."""
        ...


class PlainReading:
    """Reads the text unchanged."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: list[Head] = []
        """Heads where a longer form may still follow."""

    @property
    def is_idle(self) -> bool:
        return not self._index.longest

    def read(self, text: str, piece: str, is_last: bool = False) -> tuple[list[Find], int]:
        heads = self._index.heads(text, len(text) - len(piece))
        if not heads and not self._open:
            return [], self._index.find_partial_head(text)
        finds: list[Find] = []
        heads = self._open + heads
        self._open = [head for head in heads if self._follow(head, text, finds)]
        begun = self._index.find_partial_head(text)
        return finds, min([begun, *(head.start for head in self._open)])

    def _follow(self, head: Head, text: str, finds: list[Find]) -> bool:
        """Add the longest form at this head to the finds, and return whether a longer one may follow."""
        left = len(text) - head.start
        may_continue = False
        for form in head.forms:
            if len(form.text) > left:
                may_continue = may_continue or form.text.startswith(text[head.start :])
            elif text.startswith(form.text, head.start):
                end = head.start + len(form.text)
                size, may_go_on = match_base64_tail(text, end) if form.has_tail else (0, False)
                finds.append(Find(head.start, end + size, form))
                may_continue = may_continue or may_go_on
                break
        return may_continue

    def discard(self, before: str, held: str) -> None:
        if before and self._open:
            self._open = [Head(head.start - len(before), head.forms) for head in self._open]


class _PlacedHead(NamedTuple):
    """A head in the canonical text, and its position in the window."""

    head: Head
    start: int


class DecodedReading:
    """Reads the text in canonical form, where escapes, wrapped lines, colours and invisible characters hide
    nothing.

    Keeps a window of the text that starts at an escape or a character, possibly a little before what the stream
    holds. A form may extend over up to STRETCH times its length, which bounds the held text."""

    STRETCH = 16
    CHUNK = 4096

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: list[_PlacedHead] = []
        self._window = ""
        self._lead: int = 0
        """Characters of the window before the text that the stream holds."""
        self._canonical = ""
        self._decoded: int = 0
        """The window is decoded up to here, where an unfinished escape starts."""
        self._plain_from: int = 0
        """From here on, only white space was dropped from the window."""
        self._known_places: list[tuple[int, int]] = [(0, 0)]
        """Positions in the canonical text with the matching positions in the window."""

    @property
    def is_idle(self) -> bool:
        return not self._index.longest

    def read(self, text: str, piece: str, is_last: bool = False) -> tuple[list[Find], int]:
        known = len(self._canonical)
        self._window += piece
        self._decode(is_last)
        heads = self._index.heads(self._canonical, known)
        lead = self._lead
        if not heads and not self._open:
            return [], max(0, min(self._find_partial_head(), self._decoded) - lead)
        finds: list[Find] = []
        places = self._open + (self._place_heads(heads) if heads else [])
        self._open = [place for place in places if self._follow(place, finds)]
        begun = min([self._find_partial_head(), self._decoded, *(place.start for place in self._open)])
        return [Find(max(0, start - lead), end - lead, form) for start, end, form in finds], max(0, begun - lead)

    def _decode(self, is_last: bool) -> None:
        """Decode new text in chunks that end where no following text changes them."""
        end = len(self._window)
        while self._decoded < end:
            chunk = self._window[self._decoded : self._decoded + self.CHUNK]
            may_decode = is_special(chunk)
            is_complete = not may_decode or (is_last and self._decoded + len(chunk) == end)
            done = len(chunk) if is_complete else find_stable_end(chunk)
            if not done:
                if len(chunk) < self.CHUNK:
                    return
                done = len(chunk)
            taken = chunk[:done]
            if may_decode and is_special(taken):
                self._note_place()
                self._canonical += fold_case(canonicalize(taken))
                self._decoded += done
                self._plain_from = self._decoded
                self._note_place()
            else:
                self._canonical += fold_case("".join(taken.split()))
                self._decoded += done
            if self._known_places[-1][1] + self.CHUNK <= self._decoded:
                self._note_place()
            if done < len(chunk) and self._decoded + len(chunk) - done >= end:
                return

    def _note_place(self) -> None:
        if self._known_places[-1][1] < self._decoded:
            self._known_places.append((len(self._canonical), self._decoded))

    def _tokens(self, start: int, end: int) -> Iterator[CanonicalToken]:
        """Yield the tokens of a part of the window, split where it was decoded in parts."""
        at = start
        for _, place in self._known_places:
            if at < place < end:
                yield from iterate_tokens(self._window, at, place)
                at = place
        yield from iterate_tokens(self._window, at, end)

    def _place_heads(self, heads: list[Head]) -> list[_PlacedHead]:
        """Return the positions of heads in the window, in one pass."""
        heads.sort()
        places: list[_PlacedHead] = []
        size, at = self._find_known_place(heads[0].start)
        rest = self._tokens(at, self._decoded)
        token = next(rest)
        for head in heads:
            while size + token.size <= head.start:
                size += token.size
                token = next(rest)
            is_escape = token.end - token.start != token.size
            places.append(_PlacedHead(head, token.start if is_escape else token.start + head.start - size))
        return places

    def _find_known_place(self, index: int) -> tuple[int, int]:
        return self._known_places[bisect_right(self._known_places, (index, len(self._window))) - 1]

    def _find_place(self, index: int) -> int:
        """Return the position in the window of a character near the end of the canonical text."""
        left, place = len(self._canonical) - index, self._decoded
        while left and place > self._plain_from:
            place -= 1
            left -= not self._window[place].isspace()
        if not left:
            return place
        size, at = self._find_known_place(index)
        for token in self._tokens(at, self._decoded):
            if size + token.size > index:
                is_escape = token.end - token.start != token.size
                return token.start if is_escape else token.start + index - size
            size += token.size
        return self._decoded

    def _follow(self, place: _PlacedHead, finds: list[Find]) -> bool:
        """Add the longest form at this head to the finds, and return whether more of it, or a longer one, may
        follow."""
        head, taken = place.head, len(self._window) - place.start
        left = len(self._canonical) - head.start
        may_continue = False
        for form in head.forms:
            room = len(form.text) * self.STRETCH
            if len(form.text) > left:
                may_continue = may_continue or (
                    taken < room and form.text.startswith(self._canonical[head.start :])
                )
            elif self._canonical.startswith(form.text, head.start):
                after = head.start + len(form.text)
                size, may_go_on = match_base64_tail(self._canonical, after) if form.has_tail else (0, False)
                end = self._find_end(place.start, len(form.text) + size, place.start + room)
                if end is not None:
                    finds.append(Find(place.start, end, form))
                    may_continue = may_continue or may_go_on
                    break
        return may_continue

    def _find_end(self, start: int, size: int, limit: int) -> int | None:
        """Return where this many canonical characters from `start` on end, or None if beyond the limit."""
        for token in self._tokens(start, min(self._decoded, limit)):
            if token.size >= size:
                is_escape = token.end - token.start != token.size
                return token.end if is_escape else token.start + size
            size -= token.size
        return None

    def _find_partial_head(self) -> int:
        """Return where the end may be the beginning of a head."""
        start = self._index.find_partial_head(self._canonical)
        while start < len(self._canonical):
            at = self._find_place(start)
            if len(self._window) - at < self._index.longest * self.STRETCH:
                return at
            start = self._index.find_partial_head(self._canonical, start + 1)
        return len(self._window)

    def discard(self, before: str, held: str) -> None:
        """Move the window to the last known position at or before the start of the held text."""
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
            cut, size = target, len(self._canonical) - _count_visible(self._window[target : self._decoded])
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
                _PlacedHead(Head(place.head.start - size, place.head.forms), place.start - cut)
                for place in self._open
            ]
        self._plain_from = max(0, self._plain_from - cut)
        if len(self._known_places) > 1:
            after = [(known - size, place - cut) for known, place in self._known_places if place > cut]
            self._known_places = [(0, 0), *after]

    def _cut_before(self, target: int) -> tuple[int, int]:
        """Return the last token that starts at or before a position, as positions in the canonical text and in the
        window."""
        size, at = next(known for known in reversed(self._known_places) if known[1] <= target)
        for token in self._tokens(at, min(self._decoded, target + MAX_ESCAPE_CHARS)):
            if token.end > target:
                if token.start > target:  # the position may be inside something that is dropped
                    return size, at
                is_escape = token.end - token.start != token.size
                return (size, token.start) if is_escape else (size + target - token.start, target)
            size, at = size + token.size, token.end
        return size, at


def _count_visible(text: str) -> int:
    """Return the number of characters without white space."""
    return sum(map(len, text.split()))


def match_base64_tail(text: str, at: int) -> tuple[int, bool]:
    """Return the length of the rest of a base64 form, and whether more of it may follow."""
    found = _BASE64.match(text, at)
    size = 0 if found is None else len(found[0])
    return size, at + size == len(text) and size < 3


def _replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced and its length unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
