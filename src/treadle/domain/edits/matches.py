"""Where a text that a model wrote is in a file. An exact match comes first; then line ends, characters that look
alike and indentation may differ, in this order."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from treadle.domain.edits.look_alikes import fold_characters, fold_others, fold_quotes, list_columns

Level = Literal["exact", "line_ends", "look_alikes", "indentation"]
"""How much may differ. `line_ends`: line breaks, and blanks before them. Each level includes those before it."""
MAX_TOLERANT_CHARACTERS = 4_000_000
"""In a longer text only exact matches are found."""
MAX_TOLERANT_PLACES = 100
"""After so many places that match with tolerance, no more are counted."""
RETURN = "\r"


class TextMatch(NamedTuple):
    """A part of a text."""

    start: int
    end: int


class Matches(NamedTuple):
    """The places of a text at the first level that has any."""

    level: Level
    places: Sequence[TextMatch]


def find_matches(text: str, wanted: str) -> Matches:
    """Return the places of a text that is not empty. Exact ones do not overlap, unless there is only one without
    overlap."""
    if exact := _find_exact(text, wanted):
        return Matches("exact", exact)
    if len(text) <= MAX_TOLERANT_CHARACTERS and wanted.strip() and _may_contain(text, wanted):
        lines = split_ended_lines(text)
        for level, fold in _FOLDS.items():
            if places := _FoldedText(text, lines, fold).find(wanted):
                return Matches(level, places)
        if places := _find_block(text, lines, wanted):
            return Matches("indentation", places)
    return Matches("exact", ())


def _may_contain(text: str, wanted: str) -> bool:
    """Return whether each wanted line is in a text, as it must be at any level. This is fast, and often false."""
    folded = fold_characters(text)
    return all(line in folded for line in fold_lines(wanted.split("\n"), fold_stripped))


def _find_exact(text: str, wanted: str) -> tuple[TextMatch, ...]:
    starts: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        starts.append(at)
        at = text.find(wanted, at + len(wanted))
    if len(starts) == 1 and (overlapping := text.find(wanted, starts[0] + 1)) >= 0:
        starts.append(overlapping)
    return tuple([TextMatch(start, start + len(wanted)) for start in starts])


def fold_line_end(line: str) -> str:
    return line.rstrip()


def fold_line(line: str) -> str:
    return fold_characters(line).rstrip()


def fold_stripped(line: str) -> str:
    return fold_characters(line).strip()


LINE_FOLDS: dict[Level, Callable[[str], str]] = {
    "exact": str,
    "line_ends": fold_line_end,
    "look_alikes": fold_line,
    "indentation": fold_stripped,
}
"""What two lines have in common that match at each level."""
_FOLDS: dict[Level, Callable[[str], str]] = {"line_ends": fold_line_end, "look_alikes": fold_line}


class _FoldedText:
    """A text whose lines are folded, with the way back to its own positions. It always ends with a line break."""

    def __init__(self, text: str, lines: Sequence[str], fold: Callable[[str], str]) -> None:
        self._text = text
        self._fold = fold
        self._lines = lines
        self._folded = fold_lines(lines, fold)
        self._joined = "\n".join(self._folded)
        self._columns: dict[int, dict[int, int]] = {}

    @cached_property
    def _line_starts(self) -> list[int]:
        return find_line_starts(self._lines)

    @cached_property
    def _folded_starts(self) -> list[int]:
        return find_line_starts(self._folded)

    def find(self, wanted: str) -> tuple[TextMatch, ...]:
        """Return all places of the wanted text that begin and end between characters."""
        *lines, last = wanted.split("\n")
        is_ended = bool(last.strip()) and last != last.rstrip()  # then it must end where a line does
        folded = "\n".join([*map(self._fold, lines), self._fold(last) if is_ended else self._fold_part(last)])
        found: list[TextMatch] = []
        at = self._joined.find(folded) if folded.strip() else -1
        while at >= 0 and len(found) < MAX_TOLERANT_PLACES:
            if not is_ended or self._joined.startswith("\n", at + len(folded)):
                start, end = self._unfold(at), self._unfold(at + len(folded))
                if start is not None and end is not None:
                    found.append(TextMatch(start, self._find_content_end(end) if is_ended else end))
            at = self._joined.find(folded, at + 1)
        return tuple(found)

    def _fold_part(self, part: str) -> str:
        """Fold the start of a line, which may end with blanks."""
        return part if not part.strip() else self._fold(part)

    def _unfold(self, position: int) -> int | None:
        number = bisect_right(self._folded_starts, position) - 1
        column: int | None = position - self._folded_starts[number]
        if not (line := self._lines[number]).isascii():
            columns = self._columns.get(number)
            if columns is None:
                columns = self._columns[number] = list_columns(line)
            column = columns.get(column)
        return None if column is None else min(len(self._text), self._line_starts[number] + column)

    def _find_content_end(self, position: int) -> int:
        """Return the end of the line at a position, without its line break."""
        number = bisect_right(self._line_starts, position) - 1
        return min(len(self._text), self._line_starts[number] + len(self._lines[number].removesuffix(RETURN)))


def _find_block(text: str, lines: Sequence[str], wanted: str) -> tuple[TextMatch, ...]:
    """Return the places of whole lines that are the same but for their indentation."""
    sought = wanted.split("\n")
    is_ended = not sought[-1]
    if is_ended:
        sought.pop()
    found: list[TextMatch] = []
    folded = fold_lines(lines[:-1], fold_stripped)
    firsts = find_lines(folded, fold_lines(sought, fold_stripped), MAX_TOLERANT_PLACES)
    starts = find_line_starts(lines) if firsts else []
    for first in firsts:
        last = first + len(sought) - 1
        content_end = starts[last] + len(lines[last].removesuffix(RETURN))
        end = starts[last + 1] if is_ended else content_end
        found.append(TextMatch(starts[first], min(end, len(text))))
    return tuple(found)


def find_lines(lines: Sequence[str], sought: Sequence[str], limit: int = MAX_TOLERANT_CHARACTERS) -> list[int]:
    """Return each index at which the sought lines begin, up to a number of them."""
    joined, block = "\n".join(["", *lines, ""]), "\n".join(["", *sought, ""])
    found: list[int] = []
    at, number, counted = joined.find(block), 0, 0
    while at >= 0 and len(found) < limit:
        number += joined.count("\n", counted, at)
        counted = at
        found.append(number)
        at = joined.find(block, at + 1)
    return found


def split_ended_lines(text: str) -> list[str]:
    """Return the lines of a text and an empty one after the last line break, which is added if it is missing."""
    lines = text.split("\n")
    return lines if not lines[-1] else [*lines, ""]


def fold_lines(lines: Sequence[str], fold: Callable[[str], str]) -> list[str]:
    """Return the folded lines. Lines that occur often, such as empty ones, are folded once."""
    folded = {line: fold(line) for line in set(lines)}
    return [folded[line] for line in lines]


def find_line_starts(lines: Sequence[str]) -> list[int]:
    return list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))


# ── What differs ──


def _drop_return(line: str) -> str:
    return line.removesuffix(RETURN)


def _drop_trailing(line: str) -> str:
    end = RETURN if line.endswith(RETURN) else ""
    return line.removesuffix(RETURN).rstrip() + end


def _drop_indent(line: str) -> str:
    return line.lstrip() or line


_DIFFERENCES: dict[str, Callable[[str], str]] = {
    "line endings": _drop_return,
    "quotes": fold_quotes,
    "look-alike characters": fold_others,
    "trailing space": _drop_trailing,
    "indentation": _drop_indent,
}
"""Each way to differ, with what removes it."""


def name_differences(found: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return in which ways lines that match differ: those without which they would not."""
    pairs = [pair for pair in zip(found, wanted, strict=True) if pair[0] != pair[1]]

    def fold(line: str, left_out: str) -> str:
        for name, drop in _DIFFERENCES.items():
            if name != left_out:
                line = drop(line)
        return line

    return tuple(
        [name for name in _DIFFERENCES if any(fold(one, name) != fold(other, name) for one, other in pairs)]
    )
