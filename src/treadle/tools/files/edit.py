"""`edit_file`: replaces text that occurs exactly once."""

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import lock_for_writing
from treadle.tools.files.diff import format_changes
from treadle.tools.files.name_display import display_name
from treadle.tools.files.similarity import explain_not_found
from treadle.tools.files.text import FileText, read_text
from treadle.tools.files.workspace import open_call_workspace
from treadle.tools.function import tool

_MAX_LISTED_LINES = 10
"""How many line numbers are listed if a text occurs more than once."""


@tool(effect="write", paths=("path",), needs=("workspace",))
def edit_file(path: str, old: str, new: str, context: ToolContext, all: bool = False) -> str:
    """Replace text in a file. `old` must match exactly and occur once.

    Args:
        path: File path.
        old: Text to replace, without line numbers.
        new: New text.
        all: Replace every occurrence.
    """
    check_texts(old, new)
    with open_call_workspace(context) as workspace, workspace.locate(path) as place:
        if place.status() is None:
            place.open()  # raises an error that says what is there instead
    with open_call_workspace(context) as workspace, lock_for_writing(workspace, path) as target:
        if target.descriptor is None:
            raise ToolError(f"{display_name(target.path)} no longer exists.")
        text = read_text(target.descriptor, target.path)
        old, new, starts, data = plan_edit(text, target.path, old, new, all)
        others = target.describe_hard_links()
        target.replace(data)
        places = "" if len(starts) == 1 else f" in {len(starts)} places"
        return (
            f"{display_name(target.path)} changed{places}.{others}\n{format_changes(text.text, starts, old, new)}"
        )


def check_texts(old: str, new: str) -> None:
    """Raise ToolError if there is nothing to change, whatever the file contains."""
    if not old:
        raise ToolError("`old` is empty. Give the text that is to be replaced; write_file writes a whole file.")
    if old == new:
        raise ToolError("`old` and `new` are the same, so there is nothing to change.")


def plan_edit(text: FileText, path: str, old: str, new: str, every: bool) -> tuple[str, str, list[int], bytes]:
    """Return both texts as they are in the file, where the old one is, and the new content. Raise ToolError if the
    edit is not possible."""
    old, new = _match_newlines(text, old, new)
    starts = _find_all(text.text, old)
    _check_unambiguous(text.text, path, old, new, starts, every)
    return old, new, starts, _encode(text, text.text.replace(old, new), path)


def _match_newlines(text: FileText, old: str, new: str) -> tuple[str, str]:
    """Return both texts with the line endings of the file. If those are mixed, keep `old` as given if it is
    found."""
    if text.newline == "LF" or (text.newline == "mixed" and old in text.text):
        return old, new
    return _to_crlf(old), _to_crlf(new)


def _to_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _find_all(text: str, old: str) -> list[int]:
    starts: list[int] = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + len(old))
    return starts


def _check_unambiguous(text: str, path: str, old: str, new: str, starts: list[int], every: bool) -> None:
    if not starts:
        raise ToolError(
            f"{display_name(path)}: `old` was not found. {explain_not_found(text, old, new)} Nothing was changed."
        )
    if len(starts) > 1 and not every:
        numbers = ", ".join(str(text.count("\n", 0, at) + 1) for at in starts[:_MAX_LISTED_LINES])
        more = ", …" if len(starts) > _MAX_LISTED_LINES else ""
        raise ToolError(
            f"{display_name(path)}: `old` occurs {len(starts)} times, at lines {numbers}{more}. Include more of "
            "the surrounding text to select one, or set all=true to change each. Nothing was changed."
        )


def _encode(text: FileText, changed: str, path: str) -> bytes:
    try:
        return text.encode(changed)
    except UnicodeEncodeError as error:
        wrong = display_name(changed[error.start : error.start + 1])
        raise ToolError(
            f"{display_name(path)} is written in {text.encoding}, which cannot represent {wrong}. Leave it out, or "
            "write the whole file as UTF-8 with write_file. Nothing was changed."
        ) from None
