"""The lines of a text that a regular expression matches, and how they are shown."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from treadle.tools.files.regex import Expression

MAX_LINE_BYTES = 400
_REDACTION_MARGIN_BYTES = 4096
"""Bytes before and after a part that is shown in which a secret may begin or end."""
Redact = Callable[[str], str]
_BYTES_BEFORE_MATCH = 100
"""Characters of a long line that are shown before what matches."""


class LineMatch(NamedTuple):
    """A line that matches."""

    number: int
    start: int
    end: int
    column: int
    """Where in the line the match begins, in bytes."""


class LineMatcher:
    """A pattern that is held against lines.

    A search through the whole text leads to the next line that may match; that line is then looked at by itself. So
    a text without matches is gone through once, and no match runs over the end of a line."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._line = Expression(pattern, ignore_case)
        # `\A` and `\z` mean the line, so they cannot be searched for in the whole text.
        whole = ".*" if "\\A" in pattern or "\\z" in pattern else pattern
        self._text = Expression(f"(?m){whole}", ignore_case, never_newline=True)
        self.size = self._text.size

    def hits(self, text: bytes, first_number: int, over: Callable[[], bool]) -> Iterator[LineMatch]:
        number, counted, at = first_number, 0, 0
        while at < len(text) and not over() and (found := self._text.find(text, at)) is not None:
            start = text.rfind(b"\n", at, found[0]) + 1 or at
            if start >= len(text):
                return
            end = text.find(b"\n", start)
            end = len(text) if end < 0 else end
            number += text.count(b"\n", counted, start)
            counted, at = start, end + 1
            if (inside := self._line.find(text[start:end])) is not None:
                yield LineMatch(number, start, end, inside[0])


def render_matches(text: bytes, hits: list[LineMatch], context_lines: int, hide: Redact) -> list[str]:
    """The lines, with those around them; `--` where something is left out between."""
    shown: list[str] = []
    done = 0
    for index, hit in enumerate(hits):
        begin, back = hit.start, 0
        while back < context_lines and begin > done:
            begin = text.rfind(b"\n", 0, begin - 1) + 1
            back += 1
        if context_lines and shown and begin > done:
            shown.append("--")
        shown += _render_context(text, begin, hit.start, hit.number - back, hide)
        shown.append(f"{hit.number}:{_truncate_line(text[hit.start : hit.end], hit.column, hide)}")
        limit = hits[index + 1].start if index + 1 < len(hits) else len(text)
        done = _find_context_end(text, hit.end + 1, limit, context_lines)
        shown += _render_context(text, hit.end + 1, done, hit.number + 1, hide)
    return shown


def _find_context_end(text: bytes, start: int, limit: int, lines: int) -> int:
    """Where so many lines from here end, at most at the limit."""
    end = start
    for _ in range(lines):
        if end >= limit:
            break
        end = text.find(b"\n", end) + 1 or len(text)
    return min(end, max(limit, start))


def _render_context(text: bytes, start: int, end: int, number: int, hide: Redact) -> list[str]:
    if start >= end:
        return []
    lines = text[start:end].removesuffix(b"\n").split(b"\n")
    return [f"{number + index}-{_truncate_line(line, 0, hide)}" for index, line in enumerate(lines)]


def _truncate_line(line: bytes, column: int, hide: Redact) -> str:
    """The line, or the part of a long one that matches. A secret is not cut in two: nobody would know its half."""
    if len(line) <= MAX_LINE_BYTES:
        return line.decode("utf-8", "replace")
    start = max(0, column - _BYTES_BEFORE_MATCH)
    before = line[max(0, start - _REDACTION_MARGIN_BYTES) : start].decode("utf-8", "replace")
    part = line[start : start + MAX_LINE_BYTES].decode("utf-8", "replace")
    after = line[start + MAX_LINE_BYTES : start + MAX_LINE_BYTES + _REDACTION_MARGIN_BYTES].decode(
        "utf-8", "replace"
    )
    around = before + part + after
    if (hidden := hide(around)) != around:
        part = hidden[len(before) : len(hidden) - len(after)]
    left = len(line) - start - MAX_LINE_BYTES
    return f"{'[…]' if start else ''}{part}{f'[… {left} more bytes in this line]' if left > 0 else ''}"
