"""`apply_patch`: changes several files by one patch, all or none."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from treadle.domain.edits.file_text import FileText
from treadle.domain.edits.patch import HunkFault, PatchedText, apply_hunks
from treadle.domain.edits.patch_format import (
    AddFile,
    DeleteFile,
    FilePatch,
    Hunk,
    PatchFault,
    UpdateFile,
    list_paths,
    parse_patch,
)
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.atomic_write import WriteTarget, lock_for_writing
from treadle.tools.files.edit import describe_tolerated, encode_changed, list_lines
from treadle.tools.files.fingerprints import refuse_changed, refuse_changed_target
from treadle.tools.files.name_display import display_name
from treadle.tools.files.similarity import explain_nearest
from treadle.tools.files.text import read_text
from treadle.tools.files.workspace import OpenWorkspace, open_call_workspace
from treadle.tools.files.write import encode_content
from treadle.tools.function import tool

UNCHANGED = "Nothing was changed."


@tool(effect="write", needs=("workspace",))
def apply_patch(input: str, context: ToolContext) -> str:
    """Change files by a patch.

    Args:
        input: The patch, from `*** Begin Patch` to `*** End Patch`.
    """
    patches = read_patch(input)
    with open_call_workspace(context) as workspace:
        paths = [path for patch in patches for path in list_paths(patch)]
        refuse_changed(workspace, paths, context.files)
        for patch in patches:
            check_file_patch(patch, workspace)
        check_names(patches, workspace)
        with ExitStack() as held:
            planned = [_plan(patch, workspace, held, context.files) for patch in patches]
            _write([write for each in planned for write in each.writes])
    return "\n".join(["The patch was applied:", *[each.report for each in planned]])


def read_patch(text: str) -> tuple[FilePatch, ...]:
    """Return the changes of a patch. Raise ToolError if it is invalid."""
    try:
        return parse_patch(text)
    except PatchFault as fault:
        raise ToolError(f"{fault} {UNCHANGED}") from None


def check_file_patch(patch: FilePatch, workspace: OpenWorkspace) -> None:
    """Raise ToolError if the change of a file is not possible. Nothing is created."""
    for path in list_paths(patch):
        workspace.protection.refuse(workspace.resolve_to_write(path))
    match patch:
        case AddFile(path, content):
            encode_content(path, content)
            check_is_free(path, workspace)
        case UpdateFile(path, hunks, move_to):
            if move_to is not None:
                refuse_link(path, workspace)
            with workspace.locate(path) as place:
                descriptor = place.open()
            try:
                if hunks:  # a file that is only moved may be binary
                    apply_to_file(read_text(descriptor, path), path, hunks)
            finally:
                os.close(descriptor)
            if move_to is not None:
                check_is_free(move_to, workspace)
        case DeleteFile(path):
            refuse_link(path, workspace)
            with workspace.locate(path) as place:
                os.close(place.open())


def refuse_link(path: str, workspace: OpenWorkspace) -> None:
    """Raise ToolError if a path that is to be deleted or moved is a link. Changes of texts follow links; this would
    take the file away from under one."""
    if workspace.is_link(path):
        target = workspace.resolve_to_write(path)
        raise ToolError(
            f"{display_name(path)} is a link to {display_name(target)}. Name that file to delete or move it. "
            f"{UNCHANGED}"
        )


def check_names(patches: Sequence[FilePatch], workspace: OpenWorkspace) -> None:
    """Raise ToolError if two paths lead to the same file, which could not be locked twice."""
    known: dict[tuple[int, int], str] = {}
    for path in [path for patch in patches for path in list_paths(patch)]:
        if (identity := _find_identity(path, workspace)) is None:
            continue
        if identity in known:
            raise ToolError(
                f"{display_name(path)} and {display_name(known[identity])} are the same file. Give it one section. "
                f"{UNCHANGED}"
            )
        known[identity] = path


def _find_identity(path: str, workspace: OpenWorkspace) -> tuple[int, int] | None:
    """Return what identifies the file at a path, or None if there is none yet."""
    try:
        with workspace.locate_unvetted(path) as place:
            status = place.status()
    except ToolError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def check_is_free(path: str, workspace: OpenWorkspace) -> None:
    """Raise ToolError if a file cannot be created at a path because there is one, or because of its folders."""
    try:
        with workspace.locate_unvetted(path) as place:
            is_taken = place.status() is not None
    except ToolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        is_taken = False  # its folder is missing
    if is_taken:
        raise ToolError(f"{display_name(path)} is there already. Update it, or choose another name. {UNCHANGED}")


def apply_to_file(text: FileText, path: str, hunks: Sequence[Hunk]) -> tuple[bytes, PatchedText]:
    """Return the new content of a file. Raise ToolError if a hunk does not apply."""
    try:
        patched = apply_hunks(text.text, hunks)
    except HunkFault as fault:
        raise ToolError(f"{display_name(path)}: {_explain(fault)} {UNCHANGED}") from None
    return encode_changed(text, patched.text, path), patched


def _explain(fault: HunkFault) -> str:
    which = f"the hunk at line {fault.hunk.line} of the patch"
    match fault.kind:
        case "overlap":
            return f"{which} changes lines that another hunk changes, at line {fault.lines[0]}. Join them."
        case "ambiguous":
            return (
                f"{which} fits {len(fault.lines)} places, at lines {list_lines(fault.lines)}. Add lines of "
                "context, or name the function or class above it after `@@`."
            )
        case "missing":
            wanted = fault.hunk.old or list(fault.hunk.anchors)
            return f"{which} was not found. {explain_nearest(fault.text.splitlines(), wanted)}"


# ── Writing ──


class _Write(NamedTuple):
    """One file to write, or to remove if there is no data."""

    target: WriteTarget
    data: bytes | None
    before: bytes | None
    like: WriteTarget | None = None
    """The file whose permissions a new one gets."""


class _Planned(NamedTuple):
    writes: list[_Write]
    report: str


def _plan(
    patch: FilePatch, workspace: OpenWorkspace, held: ExitStack, shown: Sequence[FileFingerprint]
) -> _Planned:
    """Return what to write for one change, with its files locked."""
    target = held.enter_context(lock_for_writing(workspace, patch.path))
    refuse_changed_target(target, shown)
    name = display_name(target.path)
    if isinstance(patch, AddFile):
        _require(target, is_there=False)
        return _Planned([_Write(target, encode_content(patch.path, patch.content), None)], f"A {name}")
    _require(target, is_there=True)
    assert target.descriptor is not None
    before = read_all(target.descriptor)
    if isinstance(patch, DeleteFile):
        return _Planned([_Write(target, None, before)], f"D {name}{target.describe_hard_links()}")
    data, tolerated = before, ()
    if patch.hunks:
        os.lseek(target.descriptor, 0, os.SEEK_SET)
        data, patched = apply_to_file(read_text(target.descriptor, target.path), target.path, patch.hunks)
        tolerated = patched.tolerated
    notes = f"{target.describe_hard_links()}{describe_tolerated(tolerated)}"
    if patch.move_to is None:
        return _Planned([_Write(target, data, before)], f"M {name}{notes}")
    moved = held.enter_context(lock_for_writing(workspace, patch.move_to))
    refuse_changed_target(moved, shown)
    _require(moved, is_there=False)
    writes = [_Write(moved, data, None, target), _Write(target, None, before)]
    return _Planned(writes, f"M {name} -> {display_name(moved.path)}{notes}")


def _require(target: WriteTarget, is_there: bool) -> None:
    """Raise ToolError if a file was created or removed since the patch was checked."""
    if (target.descriptor is not None) is not is_there:
        verb = "no longer exists" if is_there else "is there already"
        raise ToolError(f"{display_name(target.path)} {verb}. {UNCHANGED}")


def read_all(descriptor: int) -> bytes:
    """Return the content of an open file, which is kept in case that another file cannot be written."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _write(writes: Sequence[_Write]) -> None:
    """Write all files. If one cannot be written, restore those before it; the error names those that could not be
    restored."""
    done: list[_Write] = []
    try:
        for write in writes:
            if write.data is None:
                write.target.remove()
            else:
                write.target.replace(write.data, write.like)
            done.append(write)
    except ToolError as error:
        left = [display_name(write.target.path) for write in reversed(done) if not _restore(write)]
        state = f"Changed all the same, because restoring failed: {', '.join(left)}." if left else UNCHANGED
        raise ToolError(f"{error} {state}") from error
    except BaseException:
        for write in reversed(done):
            _restore(write)
        raise


def _restore(write: _Write) -> bool:
    """Undo one write. Return whether that worked."""
    try:
        if write.before is None:
            write.target.remove()
        else:
            write.target.replace(write.before)
    except ToolError:
        return False
    return True
