"""The files that a session has changed, as styled lines: diffs with line numbers and the colours of the code."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from rich.segment import Segment
from rich.style import Style

from treadle.operations.file_changes import ChangedFile
from treadle.surfaces.markdown.code import highlight
from treadle.surfaces.markdown.palette import PLAIN, Palette
from treadle.surfaces.markdown.wrapping import Line, Span, clean, hard_wrap, pad_line
from treadle.surfaces.terminal.output import format_count
from treadle.surfaces.tui import texts

MAX_LINES_PER_FILE = 400
_MARGIN = "  "
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_SIGNS = {"created": "A", "changed": "M", "deleted": "D"}


def render_files(files: Sequence[ChangedFile], width: int, palette: Palette) -> list[Line]:
    """Return the lines of all files."""
    return [line for file in files for line in ([], *_render_file(file, width, palette))]


def _render_file(file: ChangedFile, width: int, palette: Palette) -> Iterator[Line]:
    head = [
        Segment(f"{_MARGIN}{_SIGNS[file.change]} ", palette.accent),
        Segment(clean(file.path), palette.text + palette.strong),
    ]
    if file.added is not None:
        head += [Segment(f"  +{file.added}", palette.success), Segment(f" -{file.removed}", palette.error)]
    yield head
    for remark in (file.conflict, texts.NOT_STORED.format(reason=file.unstored) if file.unstored else None):
        if remark:
            yield [Segment(f"{_MARGIN}  {clean(remark)}", palette.warning)]
    if file.diff:
        rows = file.diff.split("\n")
        yield from _render_diff(rows[:MAX_LINES_PER_FILE], _find_language(file.path), width, palette)
        if len(rows) > MAX_LINES_PER_FILE:
            more = texts.MORE_LINES.format(lines=format_count(len(rows) - MAX_LINES_PER_FILE, "more line"))
            yield [Segment(f"{_MARGIN}  {more}", palette.dim)]


def _render_diff(rows: Sequence[str], language: str, width: int, palette: Palette) -> Iterator[Line]:
    starts = [number for number, row in enumerate(rows) if row.startswith("@@")]
    digits = max(
        (len(number) for row in rows if (found := _HUNK.match(row)) for number in found.groups()), default=1
    )
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        if start != starts[0]:
            yield [Segment(f"{_MARGIN}  {' ' * (digits + 1)}⋯", palette.dim)]
        yield from _render_hunk(rows[start], rows[start + 1 : end], language, digits + 1, width, palette)


def _render_hunk(
    head: str, rows: Sequence[str], language: str, digits: int, width: int, palette: Palette
) -> Iterator[Line]:
    found = _HUNK.match(head)
    old_number, new_number = (int(found[1]), int(found[2])) if found else (1, 1)
    old = iter(highlight("\n".join(row[1:] for row in rows if row[:1] in " -"), language, palette))
    new = iter(highlight("\n".join(row[1:] for row in rows if row[:1] in " +"), language, palette))
    for row in rows:
        sign = row[:1]
        if sign == "\\":
            yield [Segment(f"{_MARGIN}  {clean(row)}", palette.dim)]
            continue
        spans: list[Span] = []
        if sign in " -":
            spans = next(old, spans)
        if sign in " +":
            spans = next(new, spans)
        number = old_number if sign == "-" else new_number
        yield from _render_row(sign, number, digits, spans, width, palette)
        old_number += sign in " -"
        new_number += sign in " +"


def _render_row(
    sign: str, number: int, digits: int, spans: list[Span], width: int, palette: Palette
) -> Iterator[Line]:
    base = {"+": palette.added, "-": palette.removed}.get(sign, PLAIN)
    fill = Style(bgcolor=base.bgcolor) if base.bgcolor is not None else Style()
    shown = [
        (text, base if base.bgcolor is None and sign in "+-" else _recolour(style, fill)) for text, style in spans
    ]
    room = max(8, width - digits - 6)
    for index, part in enumerate(hard_wrap(shown, room) or [[]]):
        gutter = f"{number:>{digits}}" if index == 0 else " " * digits
        line = [Segment(f"{sign if index == 0 else ' '} ", base), *part]
        filled = pad_line(line, room + 2, fill) if palette.fills and sign in "+-" else line
        yield [Segment(f"{_MARGIN}{gutter} ", palette.dim), *filled]


def _recolour(style: Style, fill: Style) -> Style:
    """Return the style of a token on the background of the line instead of that of a code block."""
    return Style(color=style.color, bold=style.bold, italic=style.italic, underline=style.underline) + fill


def _find_language(path: str) -> str:
    """Return the name of the lexer: most are called like the ending of their files."""
    return PurePosixPath(path).suffix.removeprefix(".") or PurePosixPath(path).name.lower()
