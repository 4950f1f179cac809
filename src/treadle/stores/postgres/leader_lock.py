"""Work that one process at a time does, of all that are there: whoever is first, and another when that one is gone.

A turn is a lock that a connection holds. Where that is lost the work stops; for a moment two may do it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from treadle.stores.postgres.connection import SQL
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresConnection

logger = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS, REPLY_TIMEOUT_SECONDS = 5.0, 5.0
"""How often one who waits for a turn asks for it, and one who has it makes sure; how long an answer may take."""


class LeaderLock:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def take(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do this work whenever it is this process's turn, until it is cancelled."""
        while True:
            try:
                connection = await self._database.connect()
                try:
                    await self._wait(connection, name)
                    await self._while_held(connection, work)
                finally:
                    connection.terminate()
            except Exception as error:  # whatever it is: who gives up here takes no turn any more
                logger.warning("%s: somebody else may take the turn: %s: %s", name, type(error).__name__, error)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _wait(self, connection: PostgresConnection, name: str) -> None:
        lock = f"treadle/{name}"
        while not await connection.fetchval(SQL["take_turn"], lock, timeout=REPLY_TIMEOUT_SECONDS):  # noqa: ASYNC110 -- nobody tells when it is free
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _while_held(self, connection: PostgresConnection, work: Callable[[], Awaitable[None]]) -> None:
        working = asyncio.ensure_future(work())
        try:
            while not (await asyncio.wait({working}, timeout=POLL_INTERVAL_SECONDS))[0]:
                await connection.fetchval(SQL["still_there"], timeout=REPLY_TIMEOUT_SECONDS)
            working.result()
        finally:
            working.cancel()
            await asyncio.wait({working})
