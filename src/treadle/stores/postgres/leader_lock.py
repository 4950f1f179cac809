"""Leader lock: work that one process at a time does. Another process takes over when the leader is gone.

The leader holds an advisory lock on a connection. When the connection is lost, its work stops; for a moment two
processes may do the work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from treadle.stores.postgres.connection import SQL
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresConnection

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS, REPLY_TIMEOUT_SECONDS = 5.0, 5.0
"""How often a process tries to become the leader, and the leader checks its connection; and how long a reply may
take."""


class LeaderLock:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def take(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work whenever this process is the leader, until cancelled."""
        while True:
            try:
                connection = await self._database.connect()
                try:
                    await self._acquire(connection, name)
                    await self._work_while_held(connection, work)
                finally:
                    connection.terminate()
            except Exception as error:  # any error: without a retry this process could never lead again
                logger.warning("%s: lost the leader lock: %s: %s", name, type(error).__name__, error)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _acquire(self, connection: PostgresConnection, name: str) -> None:
        lock = f"treadle/{name}"
        while not await connection.fetchval(SQL["take_turn"], lock, timeout=REPLY_TIMEOUT_SECONDS):  # noqa: ASYNC110 -- no notification when it is free
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _work_while_held(self, connection: PostgresConnection, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(work())
        try:
            while not (await asyncio.wait({task}, timeout=POLL_INTERVAL_SECONDS))[0]:
                await connection.fetchval(SQL["still_there"], timeout=REPLY_TIMEOUT_SECONDS)
            task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})
