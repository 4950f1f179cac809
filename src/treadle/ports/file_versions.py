"""The versions of files that runs changed: recorded before and after each change, and restored on request."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.file_versions import ChangingCall, FileVersion, NetChange, RecordedChange, RecordingGap
from treadle.domain.ids import RunId
from treadle.ports.tool import FileRecorder, NoRecorder

RestoreState = Literal["restored", "unchanged", "conflict", "failed"]


class RestoredPath(Struct, frozen=True):
    """What became of one path."""

    path: str
    state: RestoreState
    reason: str = ""
    """Why it was not restored."""


class FileRecords(Struct, frozen=True):
    """What is recorded of some runs, in order."""

    changes: tuple[RecordedChange, ...] = ()
    gaps: tuple[RecordingGap, ...] = ()


class FileVersions(Protocol):
    def prepare(self, root_id: RunId, folder: Path) -> None:
        """Store the files of a folder in the background: a run may change them by commands."""
        ...

    def open_recorder(self, call: ChangingCall) -> FileRecorder:
        """Return the recorder for a call that says which files it changes."""
        ...

    def watch(self, call: ChangingCall) -> AbstractAsyncContextManager[None]:
        """Find what a call changes in its folder while the block lasts. What cannot be recorded is recorded as a
        gap; the call is never refused for it."""
        ...

    async def read(self, root_ids: Sequence[RunId]) -> FileRecords:
        """Return what is recorded of these runs and of their sub-agents. Changes of commands that were interrupted
        are found first."""
        ...

    async def find_present(self, changes: Sequence[NetChange]) -> Sequence[FileVersion | None]:
        """Return what is at each path now."""
        ...

    async def read_content(self, version: FileVersion) -> bytes | None:
        """Return stored content, or None if it is not stored."""
        ...

    async def read_present(self, change: NetChange) -> bytes | None:
        """Return what a file contains now; None if it cannot be read."""
        ...

    async def restore(
        self, root_id: RunId, changes: Sequence[NetChange], overwrite: Callable[[str], bool]
    ) -> Sequence[RestoredPath]:
        """Restore what was there before each change. What is replaced is stored first, as changes of the run.

        A path that contains something else than the run left is a conflict, unless it may be overwritten."""
        ...

    async def sweep(self, exists: Callable[[RunId], Awaitable[bool]]) -> None:
        """Delete what belongs to runs that no longer exist."""
        ...

    async def close(self) -> None: ...


class NoFileVersions:
    """Implements `FileVersions` for an engine that records nothing."""

    def prepare(self, root_id: RunId, folder: Path) -> None:
        """Store nothing."""

    def open_recorder(self, call: ChangingCall) -> FileRecorder:
        return NoRecorder()

    def watch(self, call: ChangingCall) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def read(self, root_ids: Sequence[RunId]) -> FileRecords:
        return FileRecords()

    async def find_present(self, changes: Sequence[NetChange]) -> Sequence[FileVersion | None]:
        return [None for _ in changes]

    async def read_content(self, version: FileVersion) -> bytes | None:
        return None

    async def read_present(self, change: NetChange) -> bytes | None:
        return None

    async def restore(
        self, root_id: RunId, changes: Sequence[NetChange], overwrite: Callable[[str], bool]
    ) -> Sequence[RestoredPath]:
        return [RestoredPath(change.path, "failed", "nothing is recorded here") for change in changes]

    async def sweep(self, exists: Callable[[RunId], Awaitable[bool]]) -> None:
        """Delete nothing."""

    async def close(self) -> None:
        """Close nothing."""
