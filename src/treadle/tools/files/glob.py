"""`glob`: finds files and folders by name."""

import asyncio
from threading import Event

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.folder_walk import FolderEntry, FolderWalk
from treadle.tools.files.globs import translate_glob
from treadle.tools.files.name_display import display_name
from treadle.tools.files.regex import BadExpression, Expression
from treadle.tools.files.workspace import open_call_workspace
from treadle.tools.function import tool

MAX_RESULTS = 1000


@tool(effect="read", repeatable=True, paths=("path",), needs=("workspace",))
async def glob(pattern: str, context: ToolContext, path: str = ".", newest: bool = False) -> str:
    """List files and folders whose paths match a pattern. Skips what .gitignore names.

    Args:
        pattern: Such as `*` or `**/*.py`.
        path: Folder to look in.
        newest: Newest first.
    """
    stopped = Event()
    try:
        return await asyncio.to_thread(list_matches, context, pattern, path, stopped, newest)
    finally:
        stopped.set()


def list_matches(context: ToolContext, pattern: str, path: str, stopped: Event, newest: bool = False) -> str:
    expression = compile_glob(pattern)
    walk = FolderWalk(stopped)
    found: list[tuple[int, str]] = []
    with open_call_workspace(context) as workspace, walk.start(workspace, path) as (start, entries):
        for entry in entries:
            if entry.kind == "private":
                if entry.place.path.endswith("/") or expression.matches(entry.place.path[len(start) :]):
                    walk.note_private(entry)
                continue
            if not expression.matches(entry.place.path[len(start) :]):
                continue
            if len(found) == MAX_RESULTS and not newest:
                walk.cut = f"there are more than {MAX_RESULTS:,}"
                break
            found.append((_read_time(entry) if newest else 0, _format_entry(entry)))
    found.sort(key=lambda timed: -timed[0])  # entries with the same time keep their order
    if len(found) > MAX_RESULTS:
        walk.cut = f"the newest {MAX_RESULTS:,} are shown"
    where = "" if path == "." else f" in {display_name(path)}"
    nothing = [] if found else [f"Nothing matches {display_name(pattern)}{where}."]
    shown = [line for _, line in found[:MAX_RESULTS]]
    return "\n".join([*shown, *nothing, *walk.notes("more")])


def compile_glob(pattern: str) -> Expression:
    """Return the compiled pattern. Raise ToolError if it is invalid."""
    if not pattern:
        raise ToolError("the pattern is empty. `*` lists what is in a folder, `**/*.py` finds files at any depth.")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ToolError(
            f"the pattern {display_name(pattern)} must be relative to path, without `..`. Change path instead."
        )
    try:
        return Expression(translate_glob(pattern.removeprefix("./").rstrip("/") or "*"))
    except BadExpression as error:
        raise ToolError(f"the pattern {display_name(pattern)} cannot be used: {error}.") from None


def _read_time(entry: FolderEntry) -> int:
    """Return when a file was changed; 0 if it was removed meanwhile."""
    try:
        status = entry.place.status()
    except ToolError:
        return 0
    return 0 if status is None else status.st_mtime_ns


def _format_entry(entry: FolderEntry) -> str:
    return display_name(entry.place.path) + ("/" if entry.kind == "folder" else "")
