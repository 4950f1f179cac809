"""Moves unpacked files into place and existing files aside: all moves succeed, or all are undone."""

import errno
import os
import shutil
from pathlib import Path
from types import TracebackType


class ReversibleMoves:
    """Moves that are undone in reverse order unless all succeed."""

    def __init__(self) -> None:
        self._done: list[tuple[Path, Path]] = []

    def move(self, source: Path, target: Path) -> None:
        """Move a file or folder to a path that does not exist or is an empty folder."""
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the target exists", str(target))
        _make_folders(target.parent)
        _rename(source, target)
        self._done.append((source, target))

    def __enter__(self) -> "ReversibleMoves":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            for source, target in reversed(self._done):
                _make_folders(source.parent)
                _rename(target, source)


def _make_folders(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _rename(source: Path, target: Path) -> None:
    """Rename a file or folder, or copy a file between disks; a copy gets its name when it is complete."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV or source.is_dir():
            raise
        part = target.with_name(f".{target.name}.part")
        shutil.copy2(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.rename(target)
        source.unlink()
