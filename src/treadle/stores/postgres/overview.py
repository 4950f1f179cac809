"""Queries over all runs on PostgreSQL."""

from collections.abc import Sequence

import msgspec

from treadle.domain.envelope import Origin
from treadle.ports.journal import PositionedEvent
from treadle.ports.overview import (
    CANDIDATES,
    INDEXED_TEXTS,
    SCANNED_TEXTS,
    FoundEvents,
    SearchQuery,
    WorkerLease,
    like_pattern,
)
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow
from treadle.stores.postgres.runs import to_event
from treadle.stores.search_parts import fold, fold_said, hash_part, list_parts, list_query_parts, mark_owner


class PostgresOverview:
    """Implements `ports.overview.Overview`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def search(self, query: SearchQuery) -> FoundEvents:
        parts = list_query_parts(query.text, query.owner)
        before = query.before or await self._read_number("end_of_search")
        indexed = await self._read_number("indexed_to") if parts else 0
        if not parts or before > indexed + 1:
            return await self._scan(query, before, indexed)
        return await self._read_candidates(query, parts, before)

    async def _read_number(self, statement: str) -> int:
        row = await self._database.row(statement)
        return 0 if row is None else int(row[0])

    async def _scan(self, query: SearchQuery, before: int, indexed: int) -> FoundEvents:
        """Read the latest texts before a position that are not in the index."""
        stopped = await self._database.row("said_before_position", before, indexed, SCANNED_TEXTS)
        after = indexed if stopped is None else int(stopped[0])
        values = (before, after, like_pattern(query.text), _list_agents(query), query.owner, query.limit)
        events = tuple([_to_positioned(row) for row in await self._database.rows("search", *values)])
        if len(events) == query.limit:
            return FoundEvents(events, events[-1].position)
        return FoundEvents(events, after + 1 if after > 0 else None)

    async def _read_candidates(self, query: SearchQuery, parts: Sequence[str], before: int) -> FoundEvents:
        """Read the latest texts before a position that have all parts of the query."""
        wanted = [hash_part(part) for part in parts]
        rows = await self._database.rows("candidates", wanted, before, CANDIDATES)
        found, events = [int(row[0]) for row in rows], list[PositionedEvent]()
        for row in await self._database.rows("said_at_positions", found, _list_agents(query), query.owner):
            if fold(query.text) in fold_said(row[8], row[9], row[10]):
                events.append(_to_positioned(row))
                if len(events) == query.limit:
                    return FoundEvents(tuple(events), events[-1].position)
        return FoundEvents(tuple(events), found[-1] if len(found) == CANDIDATES else None)

    async def index_texts(self) -> bool:
        texts = await self._database.rows("said_after_index", INDEXED_TEXTS)
        if texts:
            parts = [_hash_text(mark_owner(row[4]) + fold_said(row[1], row[2], row[3])) for row in texts]
            positions = [int(row[0]) for row in texts]
            await self._database.rows("index_texts", positions, parts, positions[-1])
        return len(texts) == INDEXED_TEXTS

    async def workers(self) -> Sequence[WorkerLease]:
        return [WorkerLease(*row) for row in await self._database.rows("workers")]


def _list_agents(query: SearchQuery) -> list[str] | None:
    return None if query.agents is None else list(query.agents)


def _to_positioned(row: PostgresRow) -> PositionedEvent:
    values = tuple(row)
    return PositionedEvent(values[0], to_event(Origin(*values[1:5]), values[5:]))


def _hash_text(text: str) -> str:
    return msgspec.json.encode([hash_part(part) for part in list_parts(text)]).decode()
