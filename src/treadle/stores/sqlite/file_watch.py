"""Notices that the files of an open database were deleted, moved or replaced. SQLite continues on files without a
name, and what it commits there is gone when the process ends."""

import errno
import os
import time

from treadle.domain.errors import StoreLost

SUFFIXES = ("", "-wal", "-shm")
CHECK_INTERVAL_SECONDS = 1.0
"""How often readers check the files. A writer checks them after every commit."""
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ESTALE))

Identity = tuple[int, int]


class FileWatch:
    """The identities of the files of a database that this process has open."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Identity] = {}
        self._checked_at = time.monotonic()
        for suffix in SUFFIXES:
            if isinstance(found := _identify(f"{path}{suffix}"), tuple):
                self._known[suffix] = found

    def is_due(self) -> bool:
        """Return whether a reader is to check the files now."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_INTERVAL_SECONDS:
            return False
        self._checked_at = now
        return True

    def check(self) -> None:
        """Raise StoreLost unless all files are those that were opened. SQLite creates its companion files late."""
        for suffix in SUFFIXES:
            found = _identify(f"{self._path}{suffix}")
            known = self._known.get(suffix)
            if known is None and isinstance(found, tuple):
                self._known[suffix] = found
            elif known is not None and found is not None and found != known:
                raise self._explain(suffix, "deleted or moved" if isinstance(found, int) else "replaced")

    def _explain(self, suffix: str, what: str) -> StoreLost:
        return StoreLost(
            f"The database file {self._path}{suffix} was {what} while this process used it. Nothing more is "
            "accepted, because it would be lost. Stop this process, put the file back or restore a backup (treadle "
            "restore FILE --force), and start again."
        )


def _identify(path: str) -> Identity | int | None:
    """Return what identifies a file, an error number if it is gone, or None if that cannot be found out."""
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno if error.errno in GONE else None
    return found.st_dev, found.st_ino
