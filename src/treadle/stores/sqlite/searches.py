"""Searches in what was said on SQLite, and their index, an FTS5 table. Imported when it is used."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.envelope import Origin
from treadle.domain.ids import SessionId
from treadle.ports.journal import PositionedEvent, RunFilter
from treadle.ports.overview import (
    CANDIDATES,
    INDEXED_TEXTS,
    SCANNED_TEXTS,
    FoundEvents,
    SearchQuery,
    like_pattern,
)
from treadle.stores.search_parts import FEW_RUNS, fold, fold_said, list_query_parts, mark_owner
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import Transaction, to_event


def search(db: SqliteDatabase, query: SearchQuery) -> FoundEvents:
    """Read the latest texts that may match: first those that are not in the index, then those that it names."""
    parts = list_query_parts(query.text, query.owner)
    before = query.before or _read_number(db, "end_of_search")
    indexed = _read_number(db, "indexed_to") if parts else 0
    if not parts or before > indexed + 1:
        return _scan(db, query, before, indexed)
    return _read_candidates(db, query, parts, before)


def find_few(db: SqliteDatabase, wanted: RunFilter) -> list[int] | None:
    """Return the numbers of the runs that have the text or the cost, if they are few."""
    if wanted.text is not None and (parts := list_query_parts(wanted.text, wanted.only_owner)):
        found = _read_numbers(db, "runs_by_text", match_parts(parts))
        if len(found) < FEW_RUNS:
            return list(set(found))
    if wanted.min_cost is not None:
        found = _read_numbers(db, "runs_by_cost", wanted.min_cost)
        if len(found) < FEW_RUNS:
            return found
    return None


def _read_numbers(db: SqliteDatabase, statement: str, value: Any) -> list[int]:
    return [int(row[0]) for row in db.execute(SQL[statement], (value, FEW_RUNS))]


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


def match_parts(parts: Sequence[str]) -> str:
    """Return the expression of FTS5 for texts that have all parts."""
    quoted = (part.replace('"', '""') for part in parts)
    return " AND ".join(f'"{part}"' for part in quoted)


def index_texts(transaction: Transaction) -> bool:
    """Add the oldest texts that are not in the index. Return whether there may be more."""
    db = transaction.db
    texts = db.execute(SQL["said_after_index"], (INDEXED_TEXTS,)).fetchall()
    for position, type_, version, raw, owner in texts:
        db.execute(SQL["index_text"], (position, mark_owner(owner) + fold_said(type_, version, raw)))
    if texts:
        db.execute(SQL["move_index"], (texts[-1][0],))
    return len(texts) == INDEXED_TEXTS


def remove_from_index(db: SqliteDatabase, session_id: SessionId) -> None:
    """Remove what was said in a session from the index."""
    for position, type_, version, raw, owner in db.execute(SQL["said_in_session"], (session_id,)).fetchall():
        db.execute(SQL["unindex_text"], (position, mark_owner(owner) + fold_said(type_, version, raw)))
