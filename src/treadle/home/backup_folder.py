"""The folder `backups` of a home: backups that were made over the API. `treadle backup` writes them anywhere."""

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from treadle.config.home import Home
from treadle.domain.errors import UnknownBackup
from treadle.domain.ids import Instant
from treadle.operations.schemas import moment
from treadle.operations.system_facts import BackupView

FOLDER = "backups"
_NAME = re.compile(r"treadle-\d{8}-\d{6}(?:-\d+)?\.backup")


class BackupFolder:
    def __init__(self, home: Home, back_up: Callable[[Home, Path], None]) -> None:
        self._home = home
        self._folder = home.path / FOLDER
        self._back_up = back_up
        self._making = asyncio.Lock()

    async def make(self, now: Instant) -> BackupView:
        """Make a backup, one at a time."""
        async with self._making:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            file = self._find_free_name(now)
            await asyncio.to_thread(self._back_up, self._home, file)
            return _describe(file)

    async def list(self) -> Sequence[BackupView]:
        """Return the backups, the newest first."""
        return await asyncio.to_thread(self._read_folder)

    async def remove(self, name: str) -> None:
        """Remove a backup. Raise UnknownBackup if there is none of this name."""
        file = self._folder / name
        if not _NAME.fullmatch(name) or file.is_symlink() or not file.is_file():
            raise UnknownBackup(f"There is no backup {name[:100]!r} in {self._folder}.")
        file.unlink(missing_ok=True)

    def _read_folder(self) -> Sequence[BackupView]:
        if not self._folder.is_dir():
            return []
        files = [file for file in self._folder.iterdir() if _NAME.fullmatch(file.name) and file.is_file()]
        return [_describe(file) for file in sorted(files, key=lambda each: each.name, reverse=True)]

    def _find_free_name(self, now: Instant) -> Path:
        stem = f"treadle-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}"
        names = (f"{stem}.backup", *(f"{stem}-{number}.backup" for number in range(2, 1000)))
        return next(file for name in names if not (file := self._folder / name).exists())


def _describe(file: Path) -> BackupView:
    status = file.stat()
    return BackupView(file.name, str(file), moment(status.st_mtime), status.st_size)
