"""What is known about the files of one folder: their stored versions, and their status when they were read.

A scan compares the folder with it. Whatever differs is stored, attributed to the commands that run in the folder,
and then recorded here, in this order: after a crash, the next scan finds it again."""

import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from treadle.domain.file_versions import FOLDER_MARK, MAX_STORED_BYTES, ChangingCall, FileVersion
from treadle.domain.ids import RunId
from treadle.file_versions.contents import ContentStore, describe_at, make_digest
from treadle.file_versions.folder_scan import FolderScanner, FolderTooLarge, ScanStopped, Signature
from treadle.file_versions.line_file import append_lines, decode_lines
from treadle.file_versions.locks import hold

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_FOLDER_BYTES = 2_000_000_000
"""Content that the first scan of a folder stores at most."""
RACY_NS = 20_000_000
"""A file that changed so shortly before it was read may change again without a different time."""
_LINES_PER_ENTRY, _SPARE_LINES = 2, 1000
"""The record is rewritten when it has more lines."""
_BATCH = 500
"""Entries that are recorded at once while the first scan stores a folder."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathEntry(Struct, frozen=True, array_like=True, tag="e"):
    """A line: a path, with what is there since then."""

    path: str
    version: FileVersion | None
    signature: Signature | None
    """None: it may have changed since."""


class Announced(Struct, frozen=True, array_like=True, tag="a"):
    """A line: a tool is about to leave this at a path. No command is blamed for it."""

    path: str
    version: FileVersion | None


class UsedBy(Struct, frozen=True, array_like=True, tag="u"):
    """A line: a run that works in the folder."""

    run_id: RunId


class FolderName(Struct, frozen=True, array_like=True, tag="f"):
    """The first line: the folder."""

    folder: str


class Scanned(Struct, frozen=True, array_like=True, tag="s"):
    """A line: the first scan of the folder is complete."""


Line = PathEntry | Announced | UsedBy | FolderName | Scanned
_DECODER = msgspec.json.Decoder(Line)


class PathDifference(NamedTuple):
    """A path that a scan found changed."""

    path: str
    before: FileVersion | None
    after: FileVersion | None


class FolderRecord:
    """The record of one folder. Its methods block, and may be called from several threads and processes."""

    def __init__(
        self, folder: str, place: Path, contents: ContentStore, hidden: Collection[str], stopped: threading.Event
    ) -> None:
        self.folder = folder
        self.ignored: Sequence[str] = ()
        """Folders that the latest scan left out."""
        self._file = place / f"{make_digest(os.fsencode(folder))}.jsonl"
        self._contents = contents
        self._stopped = stopped
        self._scanner = FolderScanner(folder, hidden, stopped.is_set)
        self._thread_lock = threading.Lock()
        self._entries: dict[str, PathEntry] = {}
        self._signatures: dict[str, Signature | None] = {}
        """Those of the entries."""
        self._announced: dict[str, FileVersion | None] = {}
        self._users: set[RunId] = set()
        self._is_scanned = False
        self._lines = 0
        self._read_up_to: tuple[int, int] = (0, 0)
        """The inode and the length of what was read of the file."""

    @property
    def is_scanned(self) -> bool:
        """Whether the first scan is complete."""
        return self._is_scanned

    @contextmanager
    def locked(self) -> "Generator[None]":
        """Hold the record, with what other processes have added."""
        with self._thread_lock, hold(self._file.with_suffix(".lock")):
            self._refresh()
            yield

    def add_user(self, run_id: RunId) -> None:
        """Record that a run works in the folder. The record is kept while such a run exists."""
        if run_id in self._users:
            return
        with self.locked():
            if run_id not in self._users:
                self._append([UsedBy(run_id)])

    def announce(self, path: str, version: FileVersion | None) -> None:
        """Record what a tool is about to leave at a path. It does not wait for a scan."""
        self._announced[path] = version
        if self._lines or self._file.exists():
            append_lines(self._file, [Announced(path, version)], durable=False)

    def scan(self, attribute: Callable[[Sequence[PathDifference]], object]) -> None:
        """Store what changed since the last scan. `attribute` records it durably as changes of commands; what
        tools had announced is left out. Raise FolderTooLarge or ScanStopped. The record is held by the caller."""
        started = time.time_ns()
        is_first = not self._is_scanned
        known = self._entries
        scan = self._scanner.scan(self._signatures)
        self.ignored = scan.ignored
        batch: list[PathEntry] = []
        differences: list[PathDifference] = []
        if is_first and _count_bytes(scan.changed.values()) > MAX_FOLDER_BYTES:
            raise FolderTooLarge
        for path in sorted(scan.changed):
            if self._stopped.is_set():
                raise ScanStopped
            version = self._describe(path)
            before = known[path].version if path in known else None
            if version != before:
                differences.append(PathDifference(path, before, version))
            batch.append(PathEntry(path, version, _trust(scan.changed[path], started)))
        for path in scan.removed:
            differences.append(PathDifference(path, known[path].version, None))
            batch.append(PathEntry(path, None, None))
        if differences and not is_first:
            attribute([each for each in differences if not self._was_announced(each)])
        for start in range(0, len(batch), _BATCH):
            self._append(batch[start : start + _BATCH])
        if is_first:
            self._append([Scanned()])

    def _was_announced(self, difference: PathDifference) -> bool:
        nothing = FileVersion("folder")
        return self._announced.get(difference.path, nothing) == difference.after

    def _describe(self, path: str) -> FileVersion | None:
        parent, _, name = path.rstrip(FOLDER_MARK).rpartition("/")
        full = f"{self.folder.rstrip('/')}/{path.rstrip(FOLDER_MARK)}"
        try:
            folder = os.open(f"{self.folder}/{parent}", _FOLDER_FLAGS)
        except OSError:
            return None
        try:
            return describe_at(folder, name, full, self._contents)
        except OSError:
            return None
        finally:
            os.close(folder)

    # ── The file ──

    def _append(self, lines: Sequence[Line]) -> None:
        head = [] if self._lines else [FolderName(self.folder)]
        append_lines(self._file, [*head, *lines], durable=False)
        self._apply(lines)
        self._lines += len(lines) + len(head)
        status = self._file.stat()
        self._read_up_to = (status.st_ino, status.st_size)
        if self._lines > _LINES_PER_ENTRY * len(self._entries) + _SPARE_LINES:
            self._rewrite()

    def _apply(self, lines: Iterable[Line]) -> None:
        for line in lines:
            match line:
                case PathEntry(path, version):
                    if version is None:
                        self._entries.pop(path, None)
                        self._signatures.pop(path, None)
                    else:
                        self._entries[path] = line
                        self._signatures[path] = line.signature
                    self._announced.pop(path, None)
                case Announced(path, version):
                    self._announced[path] = version
                case UsedBy(run_id):
                    self._users.add(run_id)
                case Scanned():
                    self._is_scanned = True
                case FolderName():
                    pass

    def _refresh(self) -> None:
        """Read what other processes have added."""
        try:
            status = self._file.stat()
        except OSError:
            self._forget()
            return
        inode, length = self._read_up_to
        if (status.st_ino, status.st_size) == (inode, length):
            return
        if status.st_ino != inode or status.st_size < length:
            self._forget()
            length = 0
        with self._file.open("rb") as file:
            file.seek(length)
            lines = list(decode_lines(file.read(), _DECODER))
        self._apply(lines)
        self._lines += len(lines)
        self._read_up_to = (status.st_ino, status.st_size)

    def _forget(self) -> None:
        self._entries.clear()
        self._signatures.clear()
        self._announced.clear()
        self._users.clear()
        self._is_scanned, self._lines, self._read_up_to = False, 0, (0, 0)
        self._contents.forget()

    def _rewrite(self) -> None:
        temporary = self._file.with_suffix(".tmp")
        with suppress(FileNotFoundError):
            temporary.unlink()
        announced = [Announced(path, version) for path, version in self._announced.items()]
        users = [UsedBy(run_id) for run_id in sorted(self._users)]
        lines = [
            FolderName(self.folder),
            *users,
            *self._entries.values(),
            *announced,
            *([Scanned()] if self._is_scanned else []),
        ]
        append_lines(temporary, lines, durable=True)
        temporary.rename(self._file)
        status = self._file.stat()
        self._lines, self._read_up_to = len(lines), (status.st_ino, status.st_size)


class RecordFile(NamedTuple):
    """What the file of a folder's record holds, for the deletion of what is no longer needed."""

    path: Path
    users: frozenset[RunId]
    digests: frozenset[str]


def read_record_files(place: Path) -> list[RecordFile]:
    """Return the records of all folders."""
    found: list[RecordFile] = []
    for path in sorted(place.glob("*.jsonl")):
        entries: dict[str, FileVersion | None] = {}
        users: set[RunId] = set()
        for line in decode_lines(path.read_bytes(), _DECODER):
            match line:
                case PathEntry(name, version):
                    entries[name] = version
                case UsedBy(run_id):
                    users.add(run_id)
                case _:
                    pass
        digests = frozenset(version.digest for version in entries.values() if version is not None)
        found.append(RecordFile(path, frozenset(users), digests))
    return found


def describe_gap(call: ChangingCall, fault: Exception) -> str:
    """Return why the changes of a command cannot be recorded."""
    match fault:
        case FolderTooLarge():
            return "the folder is too large"
        case ScanStopped():
            return "Treadle was stopped"
        case OSError():
            return f"the folder cannot be recorded: {fault.strerror}"
        case _:
            return f"the folder cannot be recorded: {type(fault).__name__}"


def _count_bytes(found: Iterable[Signature]) -> int:
    """Return how much content these files have that would be stored."""
    return sum(size for _, size, *_ in found if size <= MAX_STORED_BYTES)


def _trust(found: Signature, started: int) -> Signature | None:
    """Return the status of a file as its signature, unless it changed so recently that it may change unnoticed."""
    mode, _, modified, changed, _ = found
    is_racy = not stat.S_ISDIR(mode) and max(modified, changed) > started - RACY_NS
    return None if is_racy else found
