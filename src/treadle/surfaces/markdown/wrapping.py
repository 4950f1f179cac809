"""Styled text wrapped into lines of a width in columns."""

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style

from treadle.surfaces.terminal.text import inert

Span = tuple[str, Style]
Line = list[Segment]
TAB = "    "
_WORDS = re.compile(r"[ ]+|[^ ]+")
_WIDE = re.compile(
    "[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\U00020000-\U0003fffd]"
)


def clean(text: str) -> str:
    """Return the text inert, with tabs as spaces."""
    shown = inert(text)
    return shown.replace("\t", TAB) if "\t" in shown else shown


def width_of(line: Iterable[Segment]) -> int:
    return sum(cell_len(segment.text) for segment in line)


def pad_line(line: Line, width: int, style: Style) -> Line:
    """Fill a line to a width."""
    missing = width - width_of(line)
    return [*line, Segment(" " * missing, style)] if missing > 0 else line


def wrap(spans: Sequence[Span], width: int) -> list[Line]:
    """Return the text in lines of at most `width` columns, broken at spaces where possible. `\\n` breaks a line."""
    width = max(1, width)
    lines: list[Line] = []
    for paragraph in _split_lines(spans):
        lines.extend(_wrap_paragraph(paragraph, width))
    return lines


def hard_wrap(spans: Sequence[Span], width: int) -> list[Line]:
    """Return the text in lines of at most `width` columns, broken anywhere: for code, where spaces count."""
    width = max(1, width)
    lines: list[Line] = []
    for paragraph in _split_lines(spans):
        line, used = Line(), 0
        for text, style in paragraph:
            size = cell_len(text)
            if used + size <= width:
                line.append(Segment(text, style))
                used += size
                continue
            first = _fit(text, width - used) if line else ""
            if first:
                line.append(Segment(first, style))
            if line:
                lines.append(line)
            *full, last = _chop(text[len(first) :], width)
            lines.extend([Segment(piece, style)] for piece in full)
            line, used = [Segment(last, style)], cell_len(last)
        lines.append(line)
    return lines


def _fit(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits into a width."""
    first = _chop(text, width)[0] if width > 0 else ""
    return first if cell_len(first) <= width else ""


def _chop(text: str, width: int) -> list[str]:
    """Return a text in pieces of at most a width. A character that is wider is a piece of its own. The time is in
    proportion to the length: an output can be one line of megabytes."""
    pieces = [piece for piece in chop_cells(text, width) if piece]
    missing = len(text) - sum(map(len, pieces))  # characters without a width at the end
    return [*pieces[:-1], text[-missing - len(pieces[-1]) :]] if missing and pieces else pieces or [text]


def _split_lines(spans: Sequence[Span]) -> Iterator[list[Span]]:
    line: list[Span] = []
    for text, style in spans:
        first, *others = text.split("\n")
        if first:
            line.append((first, style))
        for other in others:
            yield line
            line = [(other, style)] if other else []
    yield line


def _wrap_paragraph(spans: list[Span], width: int) -> list[Line]:
    if sum(cell_len(text) for text, _ in spans) <= width:
        return [[Segment(text, style) for text, style in spans]]
    lines: list[Line] = []
    line, used = Line(), 0
    space: list[Span] = []
    for word in _words(spans):
        size = sum(cell_len(text) for text, _ in word)
        if word[0][0].isspace():
            space = word
            continue
        gap = sum(len(text) for text, _ in space) if line or not lines else 0
        if used + gap + size > width and line:
            lines.append(line)
            line, used, gap = [], 0, 0
        if gap and space:
            _extend(line, space)
            used += gap
        space = []
        if size <= width - used:
            _extend(line, word)
            used += size
            continue
        *full, line = hard_wrap([*((segment.text, segment.style or Style()) for segment in line), *word], width)
        lines.extend(full)
        used = width_of(line)
    if line or not lines:
        lines.append(line)
    return lines


def _extend(line: Line, spans: Sequence[Span]) -> None:
    """Add text to a line, in one segment with what is before it if that has the same style."""
    for text, style in spans:
        if line and line[-1].style == style:
            line[-1] = Segment(line[-1].text + text, style)
        else:
            line.append(Segment(text, style))


def _words(spans: list[Span]) -> Iterator[list[Span]]:
    """Yield words and the spaces between them. A word can have several styles; a wide character is a word."""
    word: list[Span] = []
    for text, style in spans:
        for piece in _WORDS.findall(text):
            if piece[0] == " ":
                if word:
                    yield word
                    word = []
                yield [(piece, style)]
            elif piece.isascii() or not _WIDE.search(piece):
                word.append((piece, style))
            else:
                yield from _split_wide(piece, style, word)
                word = []
    if word:
        yield word


def _split_wide(piece: str, style: Style, before: list[Span]) -> Iterator[list[Span]]:
    """Yield the parts of a text in a script without spaces: lines can be broken before each wide character."""
    start = 0
    for found in _WIDE.finditer(piece):
        if found.start() > start or before:
            head = piece[start : found.start()]
            yield [*before, *([(head, style)] if head else [])]
            before = []
        start = found.start()
    yield [*before, (piece[start:], style)]
