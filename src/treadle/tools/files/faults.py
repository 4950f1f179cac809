"""Finds out before an approval is requested why a call of a file tool could not succeed.

Nothing is opened in a private or hidden place. What a file contains is told only if the agent may read it."""

import os
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from treadle.domain.edits.file_text import FileText
from treadle.domain.edits.patch_format import AddFile, DeleteFile, UpdateFile, list_paths
from treadle.domain.private_paths import Kind
from treadle.ports.tool import CallEnvironment, ToolError
from treadle.tools.files.apply_patch import apply_to_file, check_is_free, read_patch, refuse_link
from treadle.tools.files.edit import list_edits, plan_edits
from treadle.tools.files.name_display import display_name
from treadle.tools.files.path_errors import HiddenPlaceError
from treadle.tools.files.private_files import find_listed_places
from treadle.tools.files.text import read_text
from treadle.tools.files.workspace import OpenPath, OpenWorkspace, open_workspace
from treadle.tools.files.write import encode_content


def find_fault(tool: str, arguments: Any, scene: CallEnvironment, kinds: frozenset[Kind]) -> str | None:
    """Return why a call could not succeed, or None. `kinds` are the private places that need a reviewer first."""
    check = _CHECKS.get(tool)
    if check is None:
        return None
    listed = find_listed_places(scene.sandbox)
    try:
        with open_workspace(scene.workspace, scene.hidden, listed, kinds, scene.engine) as workspace:
            check(arguments, workspace, scene.may_read)
    except HiddenPlaceError:
        return None
    except ToolError as error:
        return str(error)
    return None


def _check_edit(arguments: Any, workspace: OpenWorkspace, may_read: bool) -> None:
    edits = list_edits(arguments.old, arguments.new, arguments.all, arguments.edits)
    workspace.protection.refuse_folder(workspace.resolve_to_write(arguments.path))
    with workspace.locate_unvetted(arguments.path) as place:
        if workspace.is_private(place):
            return
        _check_change(place, may_read, lambda text: plan_edits(text, place.path, edits))


def _check_patch(arguments: Any, workspace: OpenWorkspace, may_read: bool) -> None:
    for patch in read_patch(arguments.input):
        for path in list_paths(patch):
            workspace.protection.refuse_folder(workspace.resolve_to_write(path))
        if isinstance(patch, AddFile):
            encode_content(patch.path, patch.content)
            _check_free(patch.path, workspace)
            continue
        if isinstance(patch, DeleteFile) or patch.move_to is not None:
            refuse_link(patch.path, workspace)
        with workspace.locate_unvetted(patch.path) as place:
            if not workspace.is_private(place):
                hunks = patch.hunks if isinstance(patch, UpdateFile) else ()
                if hunks:
                    _check_change(place, may_read, partial(apply_to_file, path=place.path, hunks=hunks))
                else:
                    os.close(_open(place, may_read))
        if isinstance(patch, UpdateFile) and patch.move_to is not None:
            _check_free(patch.move_to, workspace)


def _check_free(path: str, workspace: OpenWorkspace) -> None:
    """Raise ToolError if no file can be created at a path."""
    if _leads_to_a_name(path, workspace):
        check_is_free(path, workspace)


def _check_change(place: OpenPath, may_read: bool, change: Callable[[FileText], object]) -> None:
    """Raise ToolError if a file cannot be changed. What it contains is told only if the agent may read it."""
    descriptor = _open(place, may_read)
    try:
        text = read_text(descriptor, place.path)
    finally:
        os.close(descriptor)
    try:
        change(text)
    except ToolError:
        if may_read:
            raise
        raise ToolError(
            f"{display_name(place.path)}: the text to replace does not occur exactly once, or cannot be replaced. "
            "Read the file, and give the text as it is there. Nothing was changed."
        ) from None


def _check_read(arguments: Any, workspace: OpenWorkspace, may_read: bool) -> None:
    with workspace.locate_unvetted(arguments.path) as place:
        if not workspace.is_private(place):
            os.close(_open(place, may_read))


def _check_write(arguments: Any, workspace: OpenWorkspace, may_read: bool) -> None:
    encode_content(arguments.path, arguments.content)
    workspace.protection.refuse_folder(workspace.resolve_to_write(arguments.path))
    if not _leads_to_a_name(arguments.path, workspace):
        return
    with workspace.locate_unvetted(arguments.path) as place:
        status = place.status()
        if status is not None and not stat.S_ISREG(status.st_mode) and not workspace.is_private(place):
            os.close(_open(place, may_read))  # raises an error that says what is there


def _leads_to_a_name(path: str, workspace: OpenWorkspace) -> bool:
    """Return whether the folders of a path exist. Raise ToolError if they cannot be created."""
    try:
        with workspace.locate_unvetted(path):
            return True
    except HiddenPlaceError:
        raise
    except ToolError:
        if not _can_create(path, workspace):
            raise
        return False


def _can_create(path: str, workspace: OpenWorkspace) -> bool:
    """Return whether the folders of a path are missing and can be created. Raise ToolError if one is a file."""
    for parent in PurePosixPath(path).parents:
        try:
            with workspace.locate_unvetted(str(parent)) as place:
                status = place.status()
        except HiddenPlaceError:
            raise
        except ToolError:
            continue
        if status is not None and not stat.S_ISDIR(status.st_mode) and not workspace.is_private(place):
            raise ToolError(
                f"{display_name(place.path)} is not a folder, so nothing can be written below it. Use another path."
            )
        if status is not None:
            return True
    return False


def _open(place: OpenPath, may_read: bool) -> int:
    """Return a descriptor of the file. Raise ToolError if there is none; neighbours are named only if the agent may
    read them."""
    if place.status() is None and not may_read:
        raise ToolError(f"{display_name(place.path)} is not there.")
    return place.open()


_CHECKS: Mapping[str, Callable[[Any, OpenWorkspace, bool], None]] = {
    "apply_patch": _check_patch,
    "edit_file": _check_edit,
    "read_file": _check_read,
    "write_file": _check_write,
}
