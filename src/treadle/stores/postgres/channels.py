"""Chat channels on PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from treadle.stores.channels import ChannelTables, Rows, Statement
from treadle.stores.postgres.connection import SQL, STATEMENT_SECONDS, escape_nul, unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresConnection


class PostgresChannels(ChannelTables):
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def perform(self, *statements: Statement) -> Sequence[Rows]:
        async def work(connection: PostgresConnection) -> Sequence[Rows]:
            async with connection.transaction():
                return [await _fetch(connection, name, values) for name, values in statements]

        return await self._database.run_on_connection(work, patient=True)


async def _fetch(connection: PostgresConnection, name: str, values: Sequence[Any]) -> Rows:
    given = [escape_nul(value) if isinstance(value, str) else value for value in values]
    found = await connection.fetch(SQL[name], *given, timeout=STATEMENT_SECONDS)
    return [[unescape_nul(value) if isinstance(value, str) else value for value in row] for row in found]
