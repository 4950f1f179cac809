"""`edit_file`: one piece of text for another, where it stands exactly once."""

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import alone
from treadle.tools.files.diff import shown_changes
from treadle.tools.files.name_display import shown
from treadle.tools.files.similarity import why_not_found
from treadle.tools.files.text import FileText, read_text
from treadle.tools.files.workspace import opened_for
from treadle.tools.function import tool

_LISTED = 10
"""Line numbers that are named where a text stands more than once."""


@tool(effect="write", paths=("path",), needs=("workspace",))
def edit_file(path: str, old: str, new: str, context: ToolContext, all: bool = False) -> str:
    """Replace text in a file. `old` must match exactly and occur once.

    Args:
        path: File path.
        old: Text to replace, without line numbers.
        new: New text.
        all: Replace every occurrence.
    """
    if not old:
        raise ToolError("`old` is empty. Give the text that is to be replaced; write_file writes a whole file.")
    if old == new:
        raise ToolError("`old` and `new` are the same, so there is nothing to change.")
    with opened_for(context) as workspace, workspace.place(path) as place:
        if place.status() is None:
            place.open()  # says what is there instead
    with opened_for(context) as workspace, alone(workspace, path) as target:
        if target.descriptor is None:
            raise ToolError(f"{shown(target.path)} is not there any more.")
        text = read_text(target.descriptor, target.path)
        old, new = _as_in(text, old, new)
        starts = _starts(text.text, old)
        _must_be_clear(text.text, target.path, old, new, starts, all)
        others = target.on_other_names()
        target.replace(_encoded(text, text.text.replace(old, new), target.path))
        places = "" if len(starts) == 1 else f" in {len(starts)} places"
        return f"{shown(target.path)} changed{places}.{others}\n{shown_changes(text.text, starts, old, new)}"


def _as_in(text: FileText, old: str, new: str) -> tuple[str, str]:
    """Both with the line ends of the file. Where those are mixed, as they are given if that is found."""
    if text.newline == "LF" or (text.newline == "mixed" and old in text.text):
        return old, new
    return _with_returns(old), _with_returns(new)


def _with_returns(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _starts(text: str, old: str) -> list[int]:
    starts: list[int] = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + len(old))
    return starts


def _must_be_clear(text: str, path: str, old: str, new: str, starts: list[int], every: bool) -> None:
    if not starts:
        raise ToolError(f"{shown(path)}: `old` was not found. {why_not_found(text, old, new)} Nothing was changed.")
    if len(starts) > 1 and not every:
        numbers = ", ".join(str(text.count("\n", 0, at) + 1) for at in starts[:_LISTED])
        more = ", …" if len(starts) > _LISTED else ""
        raise ToolError(
            f"{shown(path)}: `old` stands there {len(starts)} times, at lines {numbers}{more}. Take in more of the "
            "text around the one that is meant, or set all=true to change each. Nothing was changed."
        )


def _encoded(text: FileText, changed: str, path: str) -> bytes:
    try:
        return text.encoded(changed)
    except UnicodeEncodeError as error:
        wrong = shown(changed[error.start : error.start + 1])
        raise ToolError(
            f"{shown(path)} is written in {text.encoding}, which has no {wrong}. Leave it out, or write the whole "
            "file as UTF-8 with write_file. Nothing was changed."
        ) from None
