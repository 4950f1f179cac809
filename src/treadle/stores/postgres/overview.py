"""Queries over all runs on PostgreSQL."""

from collections.abc import Sequence

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
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.runs import to_event


class PostgresOverview:
    """Implements `ports.overview.Overview`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def search(self, query: SearchQuery) -> FoundEvents:
        before = query.before
        if before is None:
            end = await self._database.row("end_of_search")
            before = 1 if end is None else int(end[0])
        after = before - 1 - SEARCHED_POSITIONS
        agents = None if query.agents is None else list(query.agents)
        pattern = like_pattern(query.text)
        rows = await self._database.rows(
            "search", before, after, list(SEARCHED_TYPES), pattern, agents, query.owner, query.limit
        )
        found = map(tuple, rows)
        events = tuple([PositionedEvent(row[0], to_event(Origin(*row[1:5]), row[5:])) for row in found])
        if len(events) == query.limit:
            return FoundEvents(events, events[-1].position)
        return FoundEvents(events, after + 1 if after > 0 else None)

    async def workers(self) -> Sequence[WorkerLease]:
        return [WorkerLease(*row) for row in await self._database.rows("workers")]
