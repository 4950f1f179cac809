"""Queries over all runs on SQLite."""

from collections.abc import Sequence

import msgspec

from treadle.domain.envelope import Origin
from treadle.ports.journal import PositionedEvent
from treadle.ports.overview import (
    SEARCHED_POSITIONS,
    SEARCHED_TYPES,
    FoundEvents,
    SearchQuery,
    WorkerLease,
    like_pattern,
)
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.journal import to_event
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteOverview:
    """Implements `ports.overview.Overview`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def search(self, query: SearchQuery) -> FoundEvents:
        types = msgspec.json.encode(SEARCHED_TYPES).decode()
        agents = None if query.agents is None else msgspec.json.encode(query.agents).decode()

        def look(db: SqliteDatabase) -> FoundEvents:
            before = query.before
            if before is None:
                [before] = db.execute(SQL["end_of_search"]).fetchall()[0]
            after = int(before) - 1 - SEARCHED_POSITIONS
            values = (before, after, types, like_pattern(query.text), agents, query.owner, query.limit)
            rows = db.execute(SQL["search"], values).fetchall()
            events = tuple([PositionedEvent(row[0], to_event(Origin(*row[1:5]), row[5:])) for row in rows])
            if len(events) == query.limit:
                return FoundEvents(events, events[-1].position)
            return FoundEvents(events, after + 1 if after > 0 else None)

        return await self._writer.read(look)

    async def workers(self) -> Sequence[WorkerLease]:
        found = await self._writer.read(lambda db: db.execute(SQL["workers"]).fetchall())
        return [WorkerLease(*row) for row in found]
