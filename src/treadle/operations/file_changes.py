"""The files that runs changed: what they amount to since a message, and undoing it."""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.file_versions import EntryKind, FileVersion, NetChange, find_conflict, find_net_changes
from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.file_diff import FileDiff, compare_contents
from treadle.operations.operation import Operation
from treadle.ports.file_versions import FileRecords, RestoreState
from treadle.ports.journal import RunRecord

ChangeKind = Literal["created", "changed", "deleted"]
SETTLED_WAITS = frozenset({"interrupted", "approval", "answer", "client_tool", "unavailable", "quota", "budget"})
"""While a run waits for one of these, it changes nothing."""
Later = Annotated[bool, Meta(description="Also what the later runs of its session changed.")]


class ChangedFile(Struct, frozen=True, omit_defaults=True):
    """A file, link or folder that is not what it was before the run."""

    path: str
    """Relative to the workspace. The path of a folder ends with a slash."""
    change: ChangeKind
    kind: EntryKind
    conflict: str | None = None
    """Why undoing does not touch it without being told to: someone else changed it."""
    unstored: str = ""
    """Why its earlier content was not stored, so that it cannot be restored."""
    diff: str | None = None
    """The change up to now as a unified diff; null: not asked for, or not text."""
    added: int | None = None
    """Added lines; null like the diff. So are the removed ones."""
    removed: int | None = None


class UnrecordedCall(Struct, frozen=True):
    """A call whose changes were not recorded, or not completely."""

    run_id: RunId
    call_id: str
    reason: str


class ChangedFiles(Struct, frozen=True):
    files: tuple[ChangedFile, ...]
    unrecorded: tuple[UnrecordedCall, ...] = ()


class UndoneFile(Struct, frozen=True, omit_defaults=True):
    """What became of one file."""

    path: str
    state: RestoreState
    reason: str = ""
    """Why it was not restored."""


class UndoneFiles(Struct, frozen=True):
    files: tuple[UndoneFile, ...]
    unrecorded: tuple[UnrecordedCall, ...] = ()


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class ListChangedFiles(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    later: Later = False
    diffs: Annotated[bool, Meta(description="Also return the changes as diffs.")] = False


class UndoFiles(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    later: Later = False
    paths: Annotated[tuple[str, ...], Meta(description="Only these paths; none: all.")] = ()
    overwrite: Annotated[bool, Meta(description="Also undo changes of files that someone else changed.")] = False


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

FILES = Operation(
    "runs.files",
    "GET",
    "/v1/runs/{run_id}/files",
    scope="read",
    request=ListChangedFiles,
    response=ChangedFiles,
    errors=(404,),
)
UNDO_FILES = Operation(
    "runs.undo_files",
    "POST",
    "/v1/runs/{run_id}/files/undo",
    scope="approve",
    request=UndoFiles,
    response=UndoneFiles,
    errors=(404, 409, 422),
)


@FILES.handler
async def list_changed_files(context: Context, request: ListChangedFiles) -> ChangedFiles:
    """List the files that a run and its sub-agents changed.

    What several changes amount to, up to now. Changes of commands are found by comparing the workspace before and
    after. They are recorded on the machine that executed the run."""
    record = await context.readable_run(request.run_id)
    found, changes = await _read_changes(context, record, request.later)
    present = await context.file_versions().find_present(changes)
    files = [
        await _describe(context, change, now, request.diffs)
        for change, now in zip(changes, present, strict=True)
        if now != change.before
    ]
    return ChangedFiles(tuple(files), _list_unrecorded(found))


@UNDO_FILES.handler
async def undo_files(context: Context, request: UndoFiles) -> UndoneFiles:
    """Undo the changes that a run and its sub-agents made to files.

    Files that someone else changed since are left as they are, unless `overwrite` is set. What is replaced is
    stored first. Git is not involved."""
    record = await context.addressed_run(request.run_id)
    await _refuse_in_progress(context, record)
    found, changes = await _read_changes(context, record, request.later)
    if request.paths:
        known = {change.path for change in changes}
        if unknown := [path for path in request.paths if path not in known]:
            raise UsageError(f"{record.origin.run_id} has not changed `{unknown[0][:200]}`. Nothing was changed.")
        changes = [change for change in changes if change.path in request.paths]
    root = await _find_root(context, record)
    restored = await context.file_versions().restore(root, changes, lambda _path: request.overwrite)
    files = tuple([UndoneFile(each.path, each.state, each.reason) for each in restored])
    return UndoneFiles(tuple(sorted(files, key=lambda each: each.path)), _list_unrecorded(found))


async def _read_changes(context: Context, record: RunRecord, later: bool) -> tuple[FileRecords, list[NetChange]]:
    """Return what is recorded of a run, and what its changes amount to."""
    run_id, root = record.origin.run_id, await _find_root(context, record)
    found = await context.file_versions().read(await _list_later(context, record, root) if later else [root])
    if root != run_id and not later:
        own = tuple([change for change in found.changes if change.run_id == run_id])
        found = FileRecords(own, tuple([gap for gap in found.gaps if gap.run_id == run_id]))
    return found, find_net_changes(found.changes)


async def _find_root(context: Context, record: RunRecord) -> RunId:
    while (parent := record.origin.parent_run_id) is not None:
        record = await context.service.run(parent)
    return record.origin.run_id


async def _list_later(context: Context, record: RunRecord, root: RunId) -> list[RunId]:
    """Return a run and those that were submitted to its session after it."""
    top = await context.service.run(root)
    runs = [run.origin.run_id for run in await context.visible_runs_of(top.origin.session_id)]
    return runs[runs.index(root) :] if root in runs else [root]


async def _refuse_in_progress(context: Context, record: RunRecord) -> None:
    top = await context.service.run(await _find_root(context, record))
    for run in await context.visible_runs_of(top.origin.session_id):
        if run.status == "running" or (run.status == "waiting" and run.waiting_for not in SETTLED_WAITS):
            raise InvalidState(
                f"{run.origin.run_id} of this session is in progress and may change files. Wait for it to end, or "
                "interrupt it, then try again. Nothing was changed."
            )


def _list_unrecorded(found: FileRecords) -> tuple[UnrecordedCall, ...]:
    return tuple([UnrecordedCall(gap.run_id, gap.call_id, gap.reason) for gap in found.gaps])


async def _describe(context: Context, change: NetChange, now: FileVersion | None, diffs: bool) -> ChangedFile:
    """Return a change as a caller sees it. Values of secrets are redacted."""
    before = change.before
    unstored = "" if before is None else before.unstored
    kinds: list[EntryKind] = [each.kind for each in (now, before) if each is not None]
    compared = await _compare(context, change, now) if diffs and "folder" not in kinds else FileDiff()
    return ChangedFile(
        path=change.path,
        change="created" if before is None else "deleted" if now is None else "changed",
        kind=kinds[0] if kinds else "file",
        conflict=find_conflict(change, now),
        unstored=unstored,
        diff=compared.text,
        added=compared.added,
        removed=compared.removed,
    )


async def _compare(context: Context, change: NetChange, now: FileVersion | None) -> FileDiff:
    versions = context.file_versions()
    if (now is not None and now.unstored) or (change.before is not None and change.before.unstored):
        return FileDiff()
    before = b"" if change.before is None else await versions.read_content(change.before)
    after = b"" if now is None else await versions.read_present(change)
    if before is None or after is None:
        return FileDiff()
    found = await asyncio.to_thread(compare_contents, before, after)
    if found.text is None:
        return found
    return FileDiff(context.vault.redactor.redact(found.text).text, found.added, found.removed)
