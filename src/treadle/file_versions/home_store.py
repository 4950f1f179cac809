"""The versions of files in a home. Everything that touches files runs in threads, off the event loop."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from treadle.domain.file_versions import ChangingCall, FileVersion, NetChange, RecordedChange, RecordingGap
from treadle.domain.ids import RunId
from treadle.file_versions.contents import ContentStore
from treadle.file_versions.folder_record import FolderRecord, PathDifference, describe_gap, read_record_files
from treadle.file_versions.folder_scan import FolderTooLarge
from treadle.file_versions.locks import hold
from treadle.file_versions.recorder import CallRecorder
from treadle.file_versions.restoration import find_present, open_parent, restore_all
from treadle.file_versions.run_index import RunIndex
from treadle.file_versions.watches import WatchedCommand, Watches
from treadle.ports.clock import Clock
from treadle.ports.file_versions import FileRecords, RestoredPath
from treadle.ports.tool import FileRecorder

logger = logging.getLogger(__name__)

BASELINE_WAIT_SECONDS = 10.0
"""How long a command waits until the files of its folder are stored for the first time."""
UNDO_CALL = "undo"
"""Stands for a call in the changes of an undo."""
NOT_READY = "the files of the folder were still being stored when the command began"
INTERRUPTED = "Treadle stopped while the command ran: what was found later counts as its changes"


class HomeFileVersions:
    """Implements `ports.file_versions.FileVersions`."""

    def __init__(self, place: Path, hidden: Collection[Path], clock: Clock) -> None:
        self._place = place
        self._hidden = frozenset(os.path.realpath(path) for path in hidden)
        self._clock = clock
        self._contents = ContentStore(place / "contents")
        self._index = RunIndex(place / "runs")
        self._watches = Watches(place / "commands")
        self._stopped = threading.Event()
        self._folders: dict[str, FolderRecord] = {}
        self._active: dict[str, list[WatchedCommand]] = {}
        """The commands of this process in progress, by folder."""
        self._baselines: dict[str, asyncio.Task[None]] = {}

    # ── Recording ──

    def prepare(self, root_id: RunId, folder: Path) -> None:
        real = os.path.realpath(folder)
        if (task := self._baselines.get(real)) is None or _may_succeed_now(task):
            self._baselines[real] = asyncio.create_task(self._store_baseline(real), name="treadle-file-baseline")
            self._baselines[real].add_done_callback(_log_failure)

    async def _store_baseline(self, folder: str) -> None:
        await asyncio.to_thread(self._scan, folder, None)

    def open_recorder(self, call: ChangingCall) -> FileRecorder:
        return CallRecorder(call, self._contents, self._index, self._open(call.folder), self._hold_shared)

    @asynccontextmanager
    async def watch(self, call: ChangingCall) -> AsyncGenerator[None]:
        watch = await self._begin(call)
        try:
            yield
        finally:
            if watch is not None:
                await self._end(watch)

    async def _begin(self, call: ChangingCall) -> WatchedCommand | None:
        """Bring the record of the folder up to date, and return the watch; None if it cannot be watched."""
        self.prepare(call.root_id, Path(call.folder))
        baseline = self._baselines[call.folder]
        is_fresh = not baseline.done()
        await asyncio.wait({baseline}, timeout=BASELINE_WAIT_SECONDS)
        if not baseline.done():
            await asyncio.to_thread(self._note_gap, call, NOT_READY)
            return None
        try:
            if (fault := baseline.exception()) is not None:
                raise fault
            return await asyncio.to_thread(self._begin_watch, call, is_fresh)
        except Exception as fault:
            logger.debug("the changes of %s are not recorded", call.call_id, exc_info=True)
            await asyncio.to_thread(self._note_gap, call, describe_gap(call, fault))
            return None

    def _begin_watch(self, call: ChangingCall, is_fresh: bool) -> WatchedCommand:
        record = self._open(call.folder)
        record.add_user(call.root_id)
        if not is_fresh or not record.is_scanned:
            self._scan(call.folder, None)
        watch = self._watches.begin(call)
        self._active.setdefault(call.folder, []).append(watch)
        return watch

    async def _end(self, watch: WatchedCommand) -> None:
        call = watch.call
        try:
            await asyncio.to_thread(self._scan, call.folder, watch)
        except Exception as fault:
            logger.debug("the changes of %s are not recorded", call.call_id, exc_info=True)
            await asyncio.to_thread(self._note_gap, call, describe_gap(call, fault))
        finally:
            if watch in self._active.get(call.folder, ()):
                self._active[call.folder].remove(watch)
                watch.end()

    def _scan(self, folder: str, ending: WatchedCommand | None) -> None:
        """Scan a folder. Whatever changed counts for the commands that run in it, here and in processes that
        died."""
        record = self._open(folder)
        with self._hold_shared(), record.locked():
            active = list(self._active.get(folder, ()))
            interrupted, has_others = self._watches.find_others(folder, active)
            try:
                record.scan(lambda found: self._attribute(found, [*active, *interrupted], has_others))
                for watch in interrupted:
                    self._note_gap(watch.call, INTERRUPTED)
                    watch.end()
            except BaseException:
                for watch in interrupted:
                    os.close(watch.descriptor)
                raise
            if ending is not None:
                self._active[folder].remove(ending)
                ending.end()

    def _attribute(
        self, found: Sequence[PathDifference], watches: Sequence[WatchedCommand], has_others: bool
    ) -> None:
        """Record differences as changes of commands, once for each tree of runs."""
        calls = {watch.call.root_id: watch.call for watch in watches}
        shared = has_others or len(calls) > 1
        for call in calls.values():
            self._index.add(call.root_id, [_make_change(call, each, shared) for each in found])

    def _note_gap(self, call: ChangingCall, reason: str) -> None:
        with suppress(OSError):
            self._index.add(call.root_id, [RecordingGap(call.run_id, call.call_id, call.at, call.folder, reason)])

    def _open(self, folder: str) -> FolderRecord:
        if folder not in self._folders:
            place = self._place / "folders"
            self._folders[folder] = FolderRecord(folder, place, self._contents, self._hidden, self._stopped)
        return self._folders[folder]

    def _hold_shared(self) -> AbstractContextManager[None]:
        return hold(self._place / "lock", shared=True)

    # ── Reading and restoring ──

    async def read(self, root_ids: Sequence[RunId]) -> FileRecords:
        return await asyncio.to_thread(self._read, root_ids)

    def _read(self, root_ids: Sequence[RunId]) -> FileRecords:
        for folder in self._watches.list_interrupted_folders():
            with suppress(Exception):
                self._scan(folder, None)
        found = [each for root_id in root_ids for each in self._index.read(root_id)]
        found.sort(key=lambda each: each.at)
        changes = tuple([each for each in found if isinstance(each, RecordedChange)])
        return FileRecords(changes, tuple([each for each in found if isinstance(each, RecordingGap)]))

    async def find_present(self, changes: Sequence[NetChange]) -> Sequence[FileVersion | None]:
        return await asyncio.to_thread(lambda: [find_present(change) for change in changes])

    async def read_content(self, version: FileVersion) -> bytes | None:
        return None if version.unstored else await asyncio.to_thread(self._contents.read, version.digest)

    async def read_present(self, change: NetChange) -> bytes | None:
        return await asyncio.to_thread(_read_present, change)

    async def restore(
        self, root_id: RunId, changes: Sequence[NetChange], overwrite: Callable[[str], bool]
    ) -> Sequence[RestoredPath]:
        at = self._clock.now()

        def record(change: NetChange, present: FileVersion | None, target: FileVersion | None) -> None:
            call = ChangingCall(root_id, change.run_id, UNDO_CALL, change.folder, at)
            made = _make_change(call, PathDifference(change.path, present, target), False)
            self._index.add(root_id, [msgspec.structs.replace(made, undo=True)])
            self._open(change.folder).announce(change.path, target)

        def work() -> list[RestoredPath]:
            with self._hold_shared():
                return restore_all(changes, overwrite, self._contents, record)

        return await asyncio.to_thread(work)

    # ── Deletion ──

    async def sweep(self, exists: Callable[[RunId], Awaitable[bool]]) -> None:
        if not await asyncio.to_thread(self._place.exists):
            return
        records = await asyncio.to_thread(read_record_files, self._place / "folders")
        runs = {*self._index.list_runs(), *(run for record in records for run in record.users)}
        gone = {run for run in runs if not await exists(run)}
        await asyncio.to_thread(self._delete, gone)

    def _delete(self, gone: Collection[RunId]) -> None:
        with hold(self._place / "lock"):
            for run in gone:
                self._index.delete(run)
            used: set[str] = set()
            for record in read_record_files(self._place / "folders"):
                if record.users <= set(gone):
                    record.path.unlink(missing_ok=True)
                    record.path.with_suffix(".lock").unlink(missing_ok=True)
                else:
                    used |= record.digests
            for run in self._index.list_runs():
                for change in self._index.read(run):
                    if isinstance(change, RecordedChange):
                        used |= {each.digest for each in (change.before, change.after) if each is not None}
            self._contents.sweep(used)

    def abandon_commands(self) -> None:
        """Release the commands in progress as the death of the process does. For tests."""
        for watches in self._active.values():
            for watch in watches:
                os.close(watch.descriptor)
        self._active.clear()

    async def close(self) -> None:
        """Stop storing. Commands must have ended."""
        self._stopped.set()
        for task in self._baselines.values():
            with suppress(Exception):
                await task


def _make_change(call: ChangingCall, found: PathDifference, shared: bool) -> RecordedChange:
    return RecordedChange(
        run_id=call.run_id,
        call_id=call.call_id,
        at=call.at,
        folder=call.folder,
        path=found.path,
        before=found.before,
        after=found.after,
        shared=shared,
    )


def _read_present(change: NetChange) -> bytes | None:
    try:
        with open_parent(change.folder, change.path) as (folder, name):
            if os.path.islink(f"/proc/self/fd/{folder}/{name}"):
                return os.fsencode(os.readlink(name, dir_fd=folder))
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with open(descriptor, "rb") as file:
                return file.read()
    except OSError:
        return None


def _may_succeed_now(task: asyncio.Task[None]) -> bool:
    """Return whether a first scan failed for a reason that may have passed."""
    fault = task.exception() if task.done() and not task.cancelled() else None
    return fault is not None and not isinstance(fault, FolderTooLarge)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (fault := task.exception()) is not None:
        logger.debug("a folder was not stored: %s", fault)
