"""A file with the events that are deleted from the journal: one line of JSON per event, as in the stream.

The file is new and private to its owner. A compressed file consists of complete gzip members: what was settled
stays readable even if the process is killed while it writes the next member."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from treadle.domain.envelope import Event, to_json
from treadle.domain.errors import UsageError
from treadle.domain.ids import SessionId

PLAIN, PACKED = ".jsonl", ".jsonl.gz"


class EventExportFile:
    """Implements `ports.deletion.DeletionArchive`. No file is created before there is something to write."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._file: IO[bytes] | None = None
        self._part: gzip.GzipFile | None = None
        if not self.path.name.endswith((PLAIN, PACKED)):
            raise UsageError(f"{self.path} must end with {PLAIN}, or with {PACKED} to be compressed.")
        if not self.path.parent.is_dir():
            raise UsageError(f"There is no folder {self.path.parent}. Create it, or name another file.")
        if os.path.lexists(self.path):
            raise self._explain_exists()

    @property
    def is_created(self) -> bool:
        return self._file is not None

    def add(self, events: Sequence[Event]) -> None:
        try:
            out = self._open()
            for event in events:
                out.write(to_json(event) + b"\n")
        except OSError as error:
            raise self._explain_unwritable(error) from error

    def add_title(self, session_id: SessionId, title: str) -> None:
        line = msgspec.json.encode({"type": "session_title", "session_id": session_id, "title": title})
        try:
            self._open().write(line + b"\n")
        except OSError as error:
            raise self._explain_unwritable(error) from error

    def settle(self) -> None:
        """Write everything added so far to disk, including the directory entry."""
        if self._file is None:
            return
        try:
            if self._part is not None:
                self._part.close()
                self._part = None
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._explain_unwritable(error) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> IO[bytes] | gzip.GzipFile:
        if self._file is None:
            self._file = self._create()
        if not self.path.name.endswith(PACKED):
            return self._file
        if self._part is None:
            self._part = gzip.GzipFile(fileobj=self._file, mode="wb", filename="", mtime=0)
        return self._part

    def _create(self) -> IO[bytes]:
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise self._explain_exists() from None
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return os.fdopen(handle, "wb")

    def _explain_exists(self) -> UsageError:
        return UsageError(f"{self.path} already exists. Nothing was deleted. Name another file.")

    def _explain_unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self.path} cannot be written: {error.strerror or error}. Events that it does not contain were not "
            "deleted. Fix the problem, then continue with another file."
        )
