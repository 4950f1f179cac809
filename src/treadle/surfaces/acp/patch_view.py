"""A patch as an editor shows it: which files it changes, adds, deletes and moves, each with its diff."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import ContentToolCallContent, FileEditToolCallContent, ToolKind

from treadle.domain.edits.patch_format import (
    AddFile,
    DeleteFile,
    FilePatch,
    PatchFault,
    UpdateFile,
    list_paths,
    parse_patch,
)
from treadle.surfaces.terminal.text import reveal_line

PATH_CHARACTERS = 80


class PatchView(NamedTuple):
    title: str
    kind: ToolKind
    paths: list[str]
    content: list[ContentToolCallContent | FileEditToolCallContent]


def view_patch(text: str, folder: Path, read_text: Callable[[Path], str | None]) -> PatchView | None:
    """Return the view of a patch; None if it is not valid. `read_text` returns what a file contains before it is
    deleted, or None if that is not known."""
    try:
        patches = parse_patch(text)
    except PatchFault:
        return None
    content = [part for patch in patches for part in _show_change(patch, folder, read_text)]
    paths = [path for patch in patches for path in list_paths(patch)]
    return PatchView(", ".join(map(_describe, patches)), _find_kind(patches), paths, content)


def _describe(patch: FilePatch) -> str:
    path = reveal_line(patch.path, PATH_CHARACTERS)
    match patch:
        case AddFile():
            return f"Add {path}"
        case DeleteFile():
            return f"Delete {path}"
        case UpdateFile(move_to=move_to):
            return f"Edit {path}" if move_to is None else f"Move {path} to {reveal_line(move_to, PATH_CHARACTERS)}"


def _find_kind(patches: tuple[FilePatch, ...]) -> ToolKind:
    """Return the kind that all changes have in common."""
    if all(isinstance(patch, DeleteFile) for patch in patches):
        return "delete"
    if all(isinstance(patch, UpdateFile) and patch.move_to is not None for patch in patches):
        return "move"
    return "edit"


def _show_change(
    patch: FilePatch, folder: Path, read_text: Callable[[Path], str | None]
) -> list[ContentToolCallContent | FileEditToolCallContent]:
    path = str(folder / list_paths(patch)[-1])
    match patch:
        case AddFile():
            return [tool_diff_content(path, patch.content, None)]
        case DeleteFile():
            old = read_text(folder / patch.path)
            return [_say(patch)] if old is None else [_say(patch), tool_diff_content(path, "", old)]
        case UpdateFile():
            moved = [] if patch.move_to is None else [_say(patch)]
            diffs = [tool_diff_content(path, "\n".join(hunk.new), "\n".join(hunk.old)) for hunk in patch.hunks]
            return [*moved, *diffs]


def _say(patch: FilePatch) -> ContentToolCallContent:
    return tool_content(text_block(_describe(patch)))
