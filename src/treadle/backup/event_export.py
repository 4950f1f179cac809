"""What is deleted from the journal, in a file of its own: a line of JSON for each event, as they are streamed.

A file is new, and for its owner alone. Compressed, each part of it is whole in itself (a member of gzip): what was
settled can be read, also when whoever wrote it was killed in the next."""

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


class PastFile:
    """Implements `ports.keeping.Past`. Nothing is made before there is something to write."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._file: IO[bytes] | None = None
        self._part: gzip.GzipFile | None = None
        if not self.path.name.endswith((PLAIN, PACKED)):
            raise UsageError(f"{self.path} must end with {PLAIN}, or with {PACKED} to be compressed.")
        if not self.path.parent.is_dir():
            raise UsageError(f"There is no folder {self.path.parent}. Make it, or name another file.")
        if os.path.lexists(self.path):
            raise self._there()

    @property
    def made(self) -> bool:
        return self._file is not None

    def add(self, events: Sequence[Event]) -> None:
        try:
            out = self._opened()
            for event in events:
                out.write(to_json(event) + b"\n")
        except OSError as error:
            raise self._unwritten(error) from error

    def add_title(self, session_id: SessionId, title: str) -> None:
        line = msgspec.json.encode({"type": "session_title", "session_id": session_id, "title": title})
        try:
            self._opened().write(line + b"\n")
        except OSError as error:
            raise self._unwritten(error) from error

    def settle(self) -> None:
        """What was added is on the disk when this returns, and so is the file's name."""
        if self._file is None:
            return
        try:
            if self._part is not None:
                self._part.close()
                self._part = None
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _opened(self) -> IO[bytes] | gzip.GzipFile:
        if self._file is None:
            self._file = self._make()
        if not self.path.name.endswith(PACKED):
            return self._file
        if self._part is None:
            self._part = gzip.GzipFile(fileobj=self._file, mode="wb", filename="", mtime=0)
        return self._part

    def _make(self) -> IO[bytes]:
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise self._there() from None
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return os.fdopen(handle, "wb")

    def _there(self) -> UsageError:
        what = f"{self.path} is there already, and is not written over."
        return UsageError(f"{what} Nothing was deleted. Name another file.")

    def _unwritten(self, error: OSError) -> UsageError:
        return UsageError(
            f"{self.path} cannot be written: {error.strerror or error}. What it does not hold was not deleted. "
            "Mend that, then go on with another file."
        )
