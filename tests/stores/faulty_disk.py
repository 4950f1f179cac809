"""A disk that fails on command, under a real SQLite: full, or unable to make anything durable."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import apsw


class FaultyDisk(apsw.VFS):
    """A layer over the system's files. Make it the default with `faulty_disk`."""

    def __init__(self, under: str) -> None:
        self.under = under
        self.full = False
        self.sync_fails = False
        self.syncs = 0
        super().__init__("faulty", under, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "FaultyFile":
        return FaultyFile(self, name, flags)


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.under, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.full:
            raise apsw.FullError("no room, for this test")
        write: Callable[[bytes, int], None] = getattr(super(), "xWrite")  # noqa: B009 -- its type is not known
        write(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.syncs += 1
        if self._disk.sync_fails:
            raise apsw.IOError("fsync failed, for this test")
        super().xSync(flags)


@contextmanager
def faulty_disk() -> Generator[FaultyDisk, None, None]:
    """Put every database that is opened meanwhile on this disk."""
    before = apsw.vfs_names()[0]
    disk = FaultyDisk(before)
    try:
        yield disk
    finally:
        apsw.set_default_vfs(before)
        disk.unregister()
