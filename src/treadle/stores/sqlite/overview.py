"""Queries over all runs on SQLite."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.envelope import Origin
from treadle.ports.journal import PositionedEvent
from treadle.ports.overview import (
    CANDIDATES,
    SCANNED_TEXTS,
    FoundEvents,
    SearchQuery,
    WorkerLease,
    like_pattern,
)
from treadle.stores.search_parts import fold, fold_said, list_query_parts
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.journal import to_event
from treadle.stores.sqlite.said_index import index_texts, match_parts
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteOverview:
    """Implements `ports.overview.Overview`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def search(self, query: SearchQuery) -> FoundEvents:
        parts = list_query_parts(query.text, query.owner)

        def look(db: SqliteDatabase) -> FoundEvents:
            before = query.before or _read_number(db, "end_of_search")
            indexed = _read_number(db, "indexed_to") if parts else 0
            if before > indexed + 1:
                return _scan(db, query, before, indexed)
            return _read_candidates(db, query, parts, before)

        return await self._writer.read(look)

    async def index_texts(self) -> bool:
        return await self._writer.write(index_texts, lambda _: None, patient=True)

    async def workers(self) -> Sequence[WorkerLease]:
        found = await self._writer.read(lambda db: db.execute(SQL["workers"]).fetchall())
        return [WorkerLease(*row) for row in found]


def _read_number(db: SqliteDatabase, statement: str) -> int:
    [(number,)] = db.execute(SQL[statement]).fetchall()
    return int(number)


def _encode_agents(query: SearchQuery) -> str | None:
    return None if query.agents is None else msgspec.json.encode(query.agents).decode()


def _to_positioned(row: Sequence[Any]) -> PositionedEvent:
    return PositionedEvent(row[0], to_event(Origin(*row[1:5]), row[5:]))


def _scan(db: SqliteDatabase, query: SearchQuery, before: int, indexed: int) -> FoundEvents:
    """Read the latest texts before a position that are not in the index."""
    stopped = db.execute(SQL["said_before_position"], (before, indexed, SCANNED_TEXTS)).fetchone()
    after = indexed if stopped is None else int(stopped[0])
    values = (before, after, like_pattern(query.text), _encode_agents(query), query.owner, query.limit)
    events = tuple([_to_positioned(row) for row in db.execute(SQL["search"], values)])
    if len(events) == query.limit:
        return FoundEvents(events, events[-1].position)
    return FoundEvents(events, after + 1 if after > 0 else None)


def _read_candidates(db: SqliteDatabase, query: SearchQuery, parts: Sequence[str], before: int) -> FoundEvents:
    """Read the latest texts before a position that have all parts of the query."""
    found = [int(row[0]) for row in db.execute(SQL["candidates"], (match_parts(parts), before, CANDIDATES))]
    values = (msgspec.json.encode(found).decode(), _encode_agents(query), query.owner)
    events: list[PositionedEvent] = []
    for row in db.execute(SQL["said_at_positions"], values):
        if fold(query.text) in fold_said(row[8], row[9], row[10]):
            events.append(_to_positioned(row))
            if len(events) == query.limit:
                return FoundEvents(tuple(events), events[-1].position)
    return FoundEvents(tuple(events), found[-1] if len(found) == CANDIDATES else None)
