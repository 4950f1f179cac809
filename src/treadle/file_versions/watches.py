"""Commands in progress: a locked file each, so that changes of a command whose process died are found later."""

import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from treadle.domain.file_versions import ChangingCall
from treadle.file_versions.locks import try_lock
from treadle.file_versions.private_folders import make_private_folder


class WatchedCommand(NamedTuple):
    """A command in progress."""

    call: ChangingCall
    path: Path
    descriptor: int
    """Holds the lock."""

    def end(self) -> None:
        with suppress(OSError):
            self.path.unlink()
        os.close(self.descriptor)


class Watches:
    """The commands in progress of all processes. Its methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, call: ChangingCall) -> WatchedCommand:
        """Record that a command begins. It is durable when this returns."""
        make_private_folder(self._folder)
        path = self._folder / f"{secrets.token_hex(8)}.json"
        temporary = path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try_lock(descriptor)
        os.write(descriptor, msgspec.json.encode(call))
        os.fsync(descriptor)
        temporary.rename(path)
        return WatchedCommand(call, path, descriptor)

    def find_others(self, folder: str, own: Collection[WatchedCommand]) -> tuple[list[WatchedCommand], bool]:
        """Return the interrupted commands of a folder, and whether another process runs a command in it."""
        known = {watch.path for watch in own}
        interrupted: list[WatchedCommand] = []
        has_others = False
        for path, descriptor, call in self._open_all():
            if call is None or call.folder != folder or path in known:
                os.close(descriptor)
            elif try_lock(descriptor):
                interrupted.append(WatchedCommand(call, path, descriptor))
            else:
                has_others = True
                os.close(descriptor)
        return interrupted, has_others

    def list_interrupted_folders(self) -> set[str]:
        """Return the folders with interrupted commands."""
        found: set[str] = set()
        for _, descriptor, call in self._open_all():
            if call is not None and try_lock(descriptor):
                found.add(call.folder)
            os.close(descriptor)
        return found

    def _open_all(self) -> Iterator[tuple[Path, int, ChangingCall | None]]:
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == ".json"]
        except OSError:
            return
        for path in sorted(paths):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:  # it has just ended
                continue
            try:
                call = msgspec.json.decode(path.read_bytes(), type=ChangingCall)
            except (OSError, msgspec.DecodeError):
                call = None
            yield path, descriptor, call
