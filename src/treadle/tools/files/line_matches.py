"""Finds the lines of a text that match a regular expression, and renders them."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from treadle.tools.files.regex import Expression

MAX_LINE_BYTES = 400
_REDACTION_MARGIN_BYTES = 4096
"""How far before and after a shown part a secret may start or end."""
Redact = Callable[[str], str]
_BYTES_BEFORE_MATCH = 100
"""How much of a long line is shown before the match."""


class LineMatch(NamedTuple):
    """A line that matches."""

    number: int
    start: int
    end: int
    column: int
    """Where the match starts in the line, in bytes."""


class LineMatcher:
    """A pattern that is matched against lines.

    A search through the whole text finds the next line that may match; that line is then checked on its own. A
    text without matches is scanned once, and no match crosses the end of a line."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._line = Expression(pattern, ignore_case)
        # `\A` and `\z` refer to the line, so they cannot be searched in the whole text.
        whole = ".*" if "\\A" in pattern or "\\z" in pattern else pattern
        self._text = Expression(f"(?m){whole}", ignore_case, never_newline=True)
        self.size = self._text.size

    def find_lines(self, text: bytes, first_number: int, is_over: Callable[[], bool]) -> Iterator[LineMatch]:
        number, counted, at = first_number, 0, 0
        while at < len(text) and not is_over() and (found := self._text.find(text, at)) is not None:
            start = text.rfind(b"\n", at, found[0]) + 1 or at
            if start >= len(text):
                return
            end = text.find(b"\n", start)
            end = len(text) if end < 0 else end
            number += text.count(b"\n", counted, start)
            counted, at = start, end + 1
            if (inside := self._line.find(text[start:end])) is not None:
                yield LineMatch(number, start, end, inside[0])


def render_matches(text: bytes, hits: list[LineMatch], context_lines: int, redact: Redact) -> list[str]:
    """Return the lines with their context; `--` marks omitted lines."""
    rendered: list[str] = []
    shown_until = 0
    for index, hit in enumerate(hits):
        begin, back = hit.start, 0
        while back < context_lines and begin > shown_until:
            begin = text.rfind(b"\n", 0, begin - 1) + 1
            back += 1
        if context_lines and rendered and begin > shown_until:
            rendered.append("--")
        rendered += _render_context(text, begin, hit.start, hit.number - back, redact)
        rendered.append(f"{hit.number}:{_truncate_line(text[hit.start : hit.end], hit.column, redact)}")
        limit = hits[index + 1].start if index + 1 < len(hits) else len(text)
        shown_until = _find_context_end(text, hit.end + 1, limit, context_lines)
        rendered += _render_context(text, hit.end + 1, shown_until, hit.number + 1, redact)
    return rendered


def _find_context_end(text: bytes, start: int, limit: int, lines: int) -> int:
    """Return where `lines` lines from `start` end, at most at the limit."""
    end = start
    for _ in range(lines):
        if end >= limit:
            break
        end = text.find(b"\n", end) + 1 or len(text)
    return min(end, max(limit, start))


def _render_context(text: bytes, start: int, end: int, number: int, redact: Redact) -> list[str]:
    if start >= end:
        return []
    lines = text[start:end].removesuffix(b"\n").split(b"\n")
    return [f"{number + index}-{_truncate_line(line, 0, redact)}" for index, line in enumerate(lines)]


def _truncate_line(line: bytes, column: int, redact: Redact) -> str:
    """Return the line, or the part of a long line around the match. Redact before truncating: half a secret is not
    recognised."""
    if len(line) <= MAX_LINE_BYTES:
        return line.decode("utf-8", "replace")
    start = max(0, column - _BYTES_BEFORE_MATCH)
    before = line[max(0, start - _REDACTION_MARGIN_BYTES) : start].decode("utf-8", "replace")
    part = line[start : start + MAX_LINE_BYTES].decode("utf-8", "replace")
    after = line[start + MAX_LINE_BYTES : start + MAX_LINE_BYTES + _REDACTION_MARGIN_BYTES].decode(
        "utf-8", "replace"
    )
    around = before + part + after
    if (redacted := redact(around)) != around:
        part = redacted[len(before) : len(redacted) - len(after)]
    left = len(line) - start - MAX_LINE_BYTES
    return f"{'[…]' if start else ''}{part}{f'[… {left} more bytes in this line]' if left > 0 else ''}"
