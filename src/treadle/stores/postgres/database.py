"""A PostgreSQL database as one process uses it: a pool of connections for reading, and retries while the server is
unavailable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from treadle.domain.errors import StoreError
from treadle.domain.ids import Instant
from treadle.stores.postgres.connection import (
    CONNECT_SECONDS,
    DRIVER_ERRORS,
    SQL,
    STATEMENT_SECONDS,
    connect,
    escape_nul,
    explain,
    is_transient,
    redact_url,
    set_up,
)
from treadle.stores.postgres.driver import Pool, PostgresConnection, PostgresRow, open_pool
from treadle.stores.postgres.schema import migrate

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_READERS = 4
"""Connections in the read pool of a process."""
MAX_WAIT_SECONDS = 5.0
"""How long a caller waits for an unavailable server or a lock before it gets an error."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.05, 1.0


class PostgresDatabase:
    """Opened with `open_database`. Statements are retried after a connection loss, so each must be safe to run
    twice."""

    def __init__(self, url: str, pool: Pool) -> None:
        self.url = url
        self._pool = pool
        self._closed = False

    async def rows(self, statement: str, *values: object, patient: bool = False) -> Sequence[PostgresRow]:
        """Return the rows of a named statement. Patient callers wait until the server is available. Others get
        StoreAway or a similar error after a while."""
        text, prepared = SQL[statement], [escape_nul(v) if isinstance(v, str) else v for v in values]
        return await self.run_on_connection(
            lambda connection: connection.fetch(text, *prepared, timeout=STATEMENT_SECONDS), patient
        )

    async def run_on_connection(
        self, work: Callable[[PostgresConnection], Awaitable[Result]], patient: bool = False
    ) -> Result:
        """Run several statements on one connection that is not shared meanwhile, with the same retries."""
        loop, pause = asyncio.get_running_loop(), FIRST_BACKOFF_SECONDS
        until = loop.time() + MAX_WAIT_SECONDS
        while True:
            if self._closed:
                raise StoreError(f"The database {redact_url(self.url)} has been closed.")
            try:
                async with self._pool.acquire(timeout=CONNECT_SECONDS) as connection:
                    return await work(connection)
            except DRIVER_ERRORS as error:
                if not is_transient(error) or not (patient or loop.time() + pause < until):
                    raise explain(error, self.url) from error
                if pause == FIRST_BACKOFF_SECONDS:
                    logger.warning("%s Retrying.", explain(error, self.url))
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    async def row(self, statement: str, *values: object, patient: bool = False) -> PostgresRow | None:
        """Return the first row of a named statement, or None."""
        found = await self.rows(statement, *values, patient=patient)
        return found[0] if found else None

    async def now(self) -> Instant:
        """Return the time by the clock of the server."""
        row = await self.row("now")
        assert row is not None
        return row[0]

    async def connect(self, more: Mapping[str, str] | None = None) -> PostgresConnection:
        """Return a dedicated connection with additional server settings."""
        return await connect(self.url, more=more)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                await asyncio.wait_for(self._pool.close(), CONNECT_SECONDS)
            except TimeoutError:
                self._pool.terminate()


async def open_database(url: str) -> PostgresDatabase:
    """Return the database at a URL, migrated to the current schema.

    Raise StoreError with the cause and the remedy."""
    await migrate(url)
    return await open_without_migrating(url)


async def open_without_migrating(url: str) -> PostgresDatabase:
    """Return the database at a URL whatever its schema version, for inspection."""
    try:
        pool = await open_pool(
            url, MAX_READERS, CONNECT_SECONDS, lambda connection: set_up(connection, url), _skip_reset
        )
    except DRIVER_ERRORS as error:
        raise explain(error, url) from error
    return PostgresDatabase(url, pool)


async def _skip_reset(_: PostgresConnection) -> None:
    """Do nothing: no statement here leaves state on a connection that the server would have to reset."""
