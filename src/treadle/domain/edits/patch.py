"""What a text becomes by the hunks of a patch. All hunks refer to the text as it was, from its top to its end."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from treadle.domain.edits.file_text import find_newline
from treadle.domain.edits.matches import (
    LINE_FOLDS,
    MAX_TOLERANT_CHARACTERS,
    RETURN,
    Level,
    find_lines,
    fold_stripped,
    name_differences,
)
from treadle.domain.edits.patch_format import Hunk
from treadle.domain.edits.text_edits import adapt_line, drop_return, find_line_rule, to_crlf, to_lf


class HunkFault(ValueError):
    """A hunk does not apply. Nothing is changed."""

    def __init__(
        self, kind: Literal["missing", "ambiguous", "overlap"], hunk: Hunk, text: str, lines: tuple[int, ...] = ()
    ) -> None:
        super().__init__(kind)
        self.kind: Literal["missing", "ambiguous", "overlap"] = kind
        self.hunk = hunk
        self.text = text
        self.lines = lines


class PatchedText(Struct, frozen=True):
    text: str
    tolerated: tuple[str, ...] = ()
    """In which ways the text differs from the lines of the patch."""


class _Place(Struct, frozen=True):
    """Where a hunk applies."""

    first: int
    last: int
    """The index after its last line."""
    lines: list[str]
    """The lines that replace those."""
    tolerated: tuple[str, ...] = ()


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> PatchedText:
    """Return the text after all hunks. Raise HunkFault if one of them does not apply."""
    is_crlf = find_newline(text) == "CRLF"
    now = to_lf(text) if is_crlf else text
    is_ended = now.endswith("\n") or not now
    lines = now.split("\n")
    if is_ended:
        lines.pop()
    finder = _Finder(now, lines)
    places: list[tuple[_Place, Hunk]] = []
    for hunk in hunks:
        place = finder.find(hunk)
        places.append((place, hunk))
        finder.cursor = place.last
    places.sort(key=lambda placed: placed[0].first)
    for (one, _), (other, hunk) in pairwise(places):
        if other.first < one.last:
            raise HunkFault("overlap", hunk, now, (other.first + 1,))
    for place, _ in reversed(places):
        lines[place.first : place.last] = place.lines
    changed = "\n".join(lines) + ("\n" if is_ended and lines else "")
    tolerated = tuple(dict.fromkeys(name for place, _ in places for name in place.tolerated))
    return PatchedText(to_crlf(changed) if is_crlf else changed, tolerated)


class _Finder:
    """Finds hunks in the lines of a text."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self._text = text
        self._lines = lines
        self._folded: dict[Level, list[str]] = {}
        self.cursor = 0
        """The line after the previous hunk."""

    def find(self, hunk: Hunk) -> _Place:
        old = hunk.old
        if not old:
            return self._insert(hunk)
        places = self._find_level(hunk, old)
        while not places and old and not old[-1].strip() and hunk.lines[-1] == (" ", old[-1]):
            old = old[:-1]  # a blank line at the end may not be in the file
            hunk = Hunk(hunk.line, hunk.lines[:-1], hunk.anchors, hunk.is_at_end)
            places = self._find_level(hunk, old) if old else []
        if not places:
            raise HunkFault("missing", hunk, self._text)
        return self._choose(places, hunk)

    def _find_level(self, hunk: Hunk, old: list[str]) -> list[_Place]:
        """Return the places at the first level that has any."""
        for level in LINE_FOLDS:
            if level != "exact" and len(self._text) > MAX_TOLERANT_CHARACTERS:
                break
            fold = LINE_FOLDS[level]
            found = find_lines(self._fold(level), [fold(line) for line in old])
            if level == "exact" or any(line.strip() for line in old):
                places = [place for at in found if (place := self._adapt(hunk, at, len(old), level)) is not None]
                if places:
                    return places
        return []

    def _fold(self, level: Level) -> list[str]:
        if level not in self._folded:
            fold = LINE_FOLDS[level]
            self._folded[level] = [fold(line) for line in self._lines]
        return self._folded[level]

    def _adapt(self, hunk: Hunk, at: int, count: int, level: Level) -> _Place | None:
        """Return the place with its new lines as the file would have them, or None if their indentation is
        unknown."""
        found = self._lines[at : at + count]
        rule = find_line_rule(found, hunk.old) if level == "indentation" else None
        if level == "indentation" and rule is None:
            return None
        end = RETURN if (found or self._lines[:1]) and (found or self._lines)[0].endswith(RETURN) else ""
        lines: list[str] = []
        for kind, text in hunk.lines:
            if kind == "+":
                content = adapt_line(drop_return(text), rule)
                if content is None:
                    return None
                lines.append(content + end)
                continue
            if kind == " ":
                lines.append(self._lines[at])
            at += 1
        tolerated = () if level == "exact" else name_differences(found, hunk.old)
        return _Place(at - count, at, lines, tolerated)

    def _choose(self, places: list[_Place], hunk: Hunk) -> _Place:
        """Return the only place that fits. The context of the hunk, its order and the end of the file select it."""
        narrowed = places
        if hunk.is_at_end:
            narrowed = [place for place in narrowed if place.last == len(self._lines)] or narrowed
        if len(narrowed) > 1 and hunk.anchors:
            narrowed = self._select_below_anchors(narrowed, hunk.anchors) or narrowed
        if len(narrowed) > 1 and self.cursor:
            narrowed = [place for place in narrowed if place.first >= self.cursor] or narrowed
        if len(narrowed) > 1:
            raise HunkFault("ambiguous", hunk, self._text, tuple([place.first + 1 for place in narrowed]))
        return narrowed[0]

    def _select_below_anchors(self, places: list[_Place], anchors: Sequence[str]) -> list[_Place]:
        """Return the first place below each line that the anchors name."""
        selected: dict[int, _Place] = {}
        for line in self._find_anchored(anchors):
            below = next((place for place in places if place.first >= line - 1), None)
            if below is not None:
                selected[below.first] = below
        return list(selected.values())

    def _find_anchored(self, anchors: Sequence[str]) -> list[int]:
        """Return the lines after those that the last anchor names, each below lines that the others name."""
        starts = [at + 1 for at in self._find_anchor(anchors[0])]
        for anchor in anchors[1:]:
            found = self._find_anchor(anchor)
            below = [next((line for line in found if line >= start), None) for start in starts]
            starts = sorted({line + 1 for line in below if line is not None})
        return starts

    def _find_anchor(self, anchor: str) -> list[int]:
        for fold in LINE_FOLDS.values():
            sought = fold(anchor)
            if found := [at for at, line in enumerate(self._lines) if fold(line) == sought]:
                return found
        sought = fold_stripped(anchor)
        return [at for at, line in enumerate(self._lines) if fold_stripped(line).startswith(sought)]

    def _insert(self, hunk: Hunk) -> _Place:
        """Return the place of a hunk that only adds lines: below its context, or at the end of the file."""
        if not hunk.anchors or hunk.is_at_end:
            return self._adapt_insertion(hunk, len(self._lines))
        lines = self._find_anchored(hunk.anchors)
        after = [line for line in lines if line >= self.cursor] or lines
        if not after:
            raise HunkFault("missing", hunk, self._text)
        if len(after) > 1:
            raise HunkFault("ambiguous", hunk, self._text, tuple(after))
        return self._adapt_insertion(hunk, after[0])

    def _adapt_insertion(self, hunk: Hunk, at: int) -> _Place:
        place = self._adapt(hunk, at, 0, "exact")
        assert place is not None, "lines that are only added have no rule"
        return place
