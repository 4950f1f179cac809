"""Queries over all runs on SQLite."""

from collections.abc import Sequence

from treadle.ports.overview import FoundEvents, SearchQuery, WorkerLease
from treadle.stores.sqlite.connection import SQL
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteOverview:
    """Implements `ports.overview.Overview`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def search(self, query: SearchQuery) -> FoundEvents:
        from treadle.stores.sqlite.searches import search

        return await self._writer.read(lambda db: search(db, query))

    async def index_texts(self) -> bool:
        from treadle.stores.sqlite.searches import index_texts

        return await self._writer.write(index_texts, lambda _: None, patient=True)

    async def workers(self) -> Sequence[WorkerLease]:
        found = await self._writer.read(lambda db: db.execute(SQL["workers"]).fetchall())
        return [WorkerLease(*row) for row in found]
