"""`read_file`: returns the numbered lines of a text file."""

import os
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.name_display import display_name
from treadle.tools.files.text import FileText, read_text
from treadle.tools.files.workspace import open_call_workspace
from treadle.tools.function import tool

MAX_LINE_CHARACTERS = 2000
MAX_CHARACTERS = 100_000

_ENCODINGS = {
    "latin-1": "not UTF-8: read as Latin-1, other characters than ASCII may be wrong",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
}


@tool(effect="read", repeatable=True, paths=("path",), needs=("workspace",))
def read_file(
    path: str,
    context: ToolContext,
    start_line: Annotated[int, Meta(ge=1)] = 1,
    lines: Annotated[int, Meta(ge=1)] = 2000,
) -> str:
    """Read a text file. Lines come numbered; the number and tab are not in the file.

    Args:
        path: File path.
        start_line: First line.
        lines: Number of lines.
    """
    with open_call_workspace(context) as workspace, workspace.locate(path) as place:
        descriptor = place.open()
        try:
            text = read_text(descriptor, place.path)
        finally:
            os.close(descriptor)
        return _number_lines(text, place.path, start_line, lines, context.hide)


def _number_lines(text: FileText, path: str, start: int, count: int, hide: Callable[[str], str]) -> str:
    all_lines = split_lines(text.text)
    if not all_lines:
        return "[the file is empty]"
    if start > len(all_lines):
        raise ToolError(
            f"{display_name(path)} has {len(all_lines)} lines, so there is no line {start}. Use a smaller "
            "start_line."
        )
    numbered: list[str] = []
    room = MAX_CHARACTERS
    for number, line in enumerate(all_lines[start - 1 : start - 1 + count], start):
        cut = _truncate_line(line.removesuffix("\r"), hide)
        room -= len(cut)
        if room < 0 and numbered:
            break
        numbered.append(f"{number:>6}\t{cut}")
    last = start + len(numbered) - 1
    return "\n".join([*numbered, _format_note(text, start, last, len(all_lines))])


def split_lines(text: str) -> list[str]:
    """Return the lines. A newline at the end of the text does not start another line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _truncate_line(line: str, hide: Callable[[str], str]) -> str:
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    line = hide(line)  # redact before truncating: half a secret is not recognised
    return f"{line[:MAX_LINE_CHARACTERS]} [… {len(line) - MAX_LINE_CHARACTERS} more characters in this line]"


def _format_note(text: FileText, start: int, last: int, total: int) -> str:
    notes = [f"lines {start}-{last} of {total}"]
    if last < total:
        notes.append(f"start_line={last + 1} reads on")
    if text.newline != "LF":
        notes.append(f"line ends: {text.newline}, kept by edit_file")
    if text.mark:
        notes.append("begins with a byte order mark, kept by edit_file")
    if text.encoding in _ENCODINGS:
        notes.append(_ENCODINGS[text.encoding])
    if not text.text.endswith("\n"):
        notes.append("no newline at the end")
    return f"[{'; '.join(notes)}]"
