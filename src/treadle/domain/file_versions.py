"""Versions of files that runs changed: what is recorded of a change, and what several changes amount to."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from treadle.domain.ids import Instant, RunId
from treadle.domain.limits import MB

MAX_STORED_BYTES = 20 * MB
"""The content of a larger file is not stored."""
FOLDER_MARK = "/"
"""The path of a folder ends with it."""


EntryKind = Literal["file", "link", "folder"]


class FileVersion(Struct, frozen=True, omit_defaults=True):
    """What is at a path. Nothing is there: None in its place."""

    kind: EntryKind = "file"
    digest: str = ""
    """Of the content, or of the target of a link. Without stored content: of the status of the file."""
    size: int = 0
    mode: int = 0
    """The permission bits; 0 for a link."""
    unstored: str = ""
    """Why its content is not stored; empty if it is."""


class ChangingCall(Struct, frozen=True):
    """A call that changes files."""

    root_id: RunId
    """The run at the top of its tree. Changes of sub-agents count for it."""
    run_id: RunId
    call_id: str
    folder: str
    """The workspace, without links."""
    at: Instant


class RecordedChange(Struct, frozen=True, omit_defaults=True, tag="change"):
    """A change of one path."""

    run_id: RunId
    call_id: str
    at: Instant
    folder: str
    path: str
    """Relative to the folder. The path of a folder ends with a slash."""
    before: FileVersion | None = None
    after: FileVersion | None = None
    shared: bool = False
    """Commands of other runs ran in the folder at the same time: the change may be theirs."""
    undo: bool = False
    """The user undid changes of the run."""


class RecordingGap(Struct, frozen=True, omit_defaults=True, tag="gap"):
    """Changes that a call may have made and that were not recorded."""

    run_id: RunId
    call_id: str
    at: Instant
    folder: str
    reason: str


class NetChange(Struct, frozen=True):
    """What the changes of a path amount to."""

    folder: str
    path: str
    before: FileVersion | None
    """Before the first change."""
    left: tuple[FileVersion | None, ...]
    """What the last change left: its result or, if it did not take place, what was there before."""
    run_id: RunId
    """The run with the last change."""
    foreign: bool = False
    """Someone else changed the file in between."""
    shared: bool = False

    @property
    def after(self) -> FileVersion | None:
        return self.left[0]


CHANGED_SINCE = "it was changed since"
CHANGED_BETWEEN = "someone else changed it in between"
CHANGED_TOGETHER = "commands of other runs ran at the same time"


def find_conflict(change: NetChange, present: FileVersion | None) -> str | None:
    """Return why a path is not restored without asking, or None. `present` is what is there now."""
    if change.path.endswith(FOLDER_MARK):
        return None  # a folder is only removed if it is empty
    if present not in change.left:
        return CHANGED_SINCE
    if change.foreign:
        return CHANGED_BETWEEN
    return CHANGED_TOGETHER if change.shared else None


def find_net_changes(changes: Iterable[RecordedChange]) -> list[NetChange]:
    """Return what changes amount to, path by path, without those that leave a path as it was.

    Whether the last change of a path took place is not known: the process may have died before it."""
    by_path: dict[tuple[str, str], list[RecordedChange]] = {}
    for change in changes:
        by_path.setdefault((change.folder, change.path), []).append(change)
    found = [_join_changes(each) for each in by_path.values()]
    kept = (each for each in found if any(version != each.before for version in each.left))
    return sorted(kept, key=lambda each: (each.folder, each.path))


def _join_changes(changes: list[RecordedChange]) -> NetChange:
    first, last = changes[0], changes[-1]
    start, foreign, shared = first.before, False, first.shared
    for previous, change in pairwise(changes):
        if change.undo and change.after == start:
            foreign = shared = False  # undone: whatever follows begins anew
        else:
            foreign = foreign or change.before not in (previous.after, previous.before)
            shared = shared or change.shared
    left = (last.after,) if last.after == last.before else (last.after, last.before)
    return NetChange(
        folder=first.folder,
        path=first.path,
        before=start,
        left=left,
        run_id=last.run_id,
        foreign=foreign,
        shared=shared,
    )
