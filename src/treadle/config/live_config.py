"""The settings of a home in a process that runs for long: a changed `config.yaml` takes effect, an invalid one does
not."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.config.home_config import HomeConfig
from treadle.domain.errors import ConfigError

INTERVAL_SECONDS = 1.0
"""Poll interval for changes of the file."""
SETTLE_SECONDS = 0.2
AT_NEXT_START = frozenset({"server", "webhooks", "credits", "mcp", "channels", "storage"})
"""Sections that a running process does not apply."""


class ConfigChange(Struct, frozen=True):
    """The result of reading a changed `config.yaml`."""

    config: HomeConfig
    """The settings that are in use now."""
    sections: tuple[str, ...] = ()
    """The sections that have changed."""
    problem: str = ""
    """Why the file was not applied."""

    def describe(self) -> str:
        """Return a sentence for the user."""
        if self.problem:
            problem = self.problem.rstrip(".")
            return f"config.yaml has changed and is not used: {problem}. The settings from before stay in use."
        now = [name for name in self.sections if name not in AT_NEXT_START]
        later = [name for name in self.sections if name in AT_NEXT_START]
        used = [f"{', '.join(now)} in use now"] if now else []
        used += [f"{', '.join(later)} at the next start"] if later else []
        return f"config.yaml has changed: {'; '.join(used)}."


class LiveConfig:
    """The latest valid settings of a home. The file is read again only if it has changed."""

    def __init__(self, path: Path, read: Callable[[], HomeConfig]) -> None:
        self._path = path
        self._read = read
        self._seen = compute_file_fingerprint(path)
        self._current = read()
        self._vanished_at: float | None = None
        """When the file was first seen empty or missing. An editor may be about to write it."""
        self.monotonic = time.monotonic
        """The clock that measures how long the file is empty or missing."""
        self.listeners: list[Callable[[ConfigChange], None]] = []
        """Called with every change."""

    def refresh(self) -> HomeConfig:
        """Return the settings; apply the file first if it has changed and is valid."""
        seen = compute_file_fingerprint(self._path)
        if seen != self._seen and not self._is_unsettled(seen):
            self._seen = seen
            if (change := self._find_change()) is not None:
                self._current = change.config
                for listener in self.listeners:
                    listener(change)
        return self._current

    def _is_unsettled(self, seen: tuple[int, int, int] | None) -> bool:
        """Return whether the file may be in the middle of being replaced. Some file systems report an emptied file
        with its old time."""
        if seen is not None and seen[1] > 0:
            self._vanished_at = None
            return _is_being_written(seen)
        if self._vanished_at is None:
            self._vanished_at = self.monotonic()
        return self.monotonic() - self._vanished_at < SETTLE_SECONDS

    @asynccontextmanager
    async def watch(self, say: Callable[[str], None]) -> AsyncGenerator[None]:
        """Apply changes of the file while the context manager is entered. `say` reports each change."""

        def report(change: ConfigChange) -> None:
            say(change.describe())

        async def watch() -> None:
            while True:
                await asyncio.sleep(INTERVAL_SECONDS)
                self.refresh()

        self.listeners.append(report)
        task = asyncio.create_task(watch())
        try:
            yield
        finally:
            task.cancel()
            self.listeners.remove(report)

    def _find_change(self) -> ConfigChange | None:
        try:
            found = self._read()
        except ConfigError as error:
            return ConfigChange(self._current, problem=str(error))
        before, after = msgspec.structs.asdict(self._current), msgspec.structs.asdict(found)
        sections = tuple(name for name in after if before[name] != after[name])
        return ConfigChange(found, sections) if sections else None


def _is_being_written(seen: tuple[int, int, int] | None) -> bool:
    """Return whether a file has only just changed: an editor may have written half of it."""
    return seen is not None and 0 <= time.time() - seen[0] / 1e9 < SETTLE_SECONDS


def compute_file_fingerprint(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or edited, or None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
