"""`glob`: files and folders by their names."""

import asyncio
from threading import Event

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.folder_walk import Entry, Walk
from treadle.tools.files.globs import glob_expression
from treadle.tools.files.name_display import shown
from treadle.tools.files.regex import BadExpression, Expression
from treadle.tools.files.workspace import opened_for
from treadle.tools.function import tool

MOST_RESULTS = 1000


@tool(effect="read", repeatable=True, paths=("path",), needs=("workspace",))
async def glob(pattern: str, context: ToolContext, path: str = ".") -> str:
    """List files and folders whose paths match a pattern. Skips what .gitignore names.

    Args:
        pattern: Such as `*` or `**/*.py`.
        path: Folder to look in.
    """
    stopped = Event()
    try:
        return await asyncio.to_thread(listed, context, pattern, path, stopped)
    finally:
        stopped.set()


def listed(context: ToolContext, pattern: str, path: str, stopped: Event) -> str:
    expression = name_expression(pattern)
    walk = Walk(stopped)
    found: list[str] = []
    with opened_for(context) as workspace, walk.start(workspace, path) as (start, entries):
        for entry in entries:
            if entry.kind == "private":
                if entry.place.path.endswith("/") or expression.fits(entry.place.path[len(start) :]):
                    walk.leave_out(entry)
                continue
            if not expression.fits(entry.place.path[len(start) :]):
                continue
            if len(found) == MOST_RESULTS:
                walk.cut = f"there are more than {MOST_RESULTS:,}"
                break
            found.append(_line(entry))
    where = "" if path == "." else f" in {shown(path)}"
    nothing = [] if found else [f"Nothing matches {shown(pattern)}{where}."]
    return "\n".join([*found, *nothing, *walk.notes("more")])


def name_expression(pattern: str) -> Expression:
    """The pattern, compiled; raises ToolError for one that is none."""
    if not pattern:
        raise ToolError("the pattern is empty. `*` lists what is in a folder, `**/*.py` finds files at any depth.")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(
            f"the pattern {shown(pattern)} must be relative to path, without `..`. Change path instead."
        )
    try:
        return Expression(glob_expression(pattern.removeprefix("./").rstrip("/") or "*"))
    except BadExpression as error:
        raise ToolError(f"the pattern {shown(pattern)} cannot be used: {error}.") from None


def _line(entry: Entry) -> str:
    return shown(entry.place.path) + ("/" if entry.kind == "folder" else "")
