"""Notices changes of the agents and skills of a home: edited files become versions, and what the processes on a
database share is exchanged with it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from treadle.domain.errors import TreadleError
from treadle.operations.agent_version_service import AgentVersionService

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 1.0
"""Poll interval for changes of files."""
DATABASE_INTERVAL_SECONDS = 10.0
"""Poll interval for changes of the database, of which a notification was lost."""


class Shared(Protocol):
    async def synchronize(self) -> None:
        """Store what has changed in the files, and write what has changed in the database."""
        ...

    def has_changed(self) -> bool:
        """Return whether files have changed since the last synchronization."""
        ...


class DefinitionWatch:
    """Notices changes while a process runs."""

    def __init__(self, versions: AgentVersionService, shared: tuple[Shared, ...]) -> None:
        self._versions = versions
        self._shared = shared
        self._news = asyncio.Event()
        self._synchronized_at = 0.0

    @property
    def is_shared(self) -> bool:
        return bool(self._shared)

    def on_news(self) -> None:
        """The database may have changed."""
        self._news.set()

    async def synchronize(self) -> None:
        self._news.clear()
        self._synchronized_at = asyncio.get_running_loop().time()
        for each in self._shared:
            await each.synchronize()

    @asynccontextmanager
    async def run_in_background(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self._watch(), name="treadle-definitions")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except TreadleError as error:
                logger.debug("definitions: cannot be synchronized now: %s", error)
            except Exception:
                logger.exception("definitions: cannot be synchronized; retrying")
            try:
                async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        is_due = bool(self._shared) and now - self._synchronized_at >= DATABASE_INTERVAL_SECONDS
        if self._news.is_set() or is_due or any(each.has_changed() for each in self._shared):
            await self.synchronize()
        await self._versions.notice_all()
