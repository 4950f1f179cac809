"""Queries for runs and their events on PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from treadle.domain.envelope import Event, Origin, decode_data
from treadle.domain.errors import UnknownRun
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.users import UserId
from treadle.ports.journal import ALL_RUNS, PositionedEvent, RunFilter, RunRecord
from treadle.stores.postgres.batch import explain_missing_run
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow
from treadle.stores.run_facts import decode_labels


class PostgresRuns:
    """Implements `ports.journal.Runs`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def record(self, run_id: RunId) -> RunRecord:
        found = await self._database.row("record", run_id)
        if found is None:
            raise await self._unknown(run_id)
        return to_run_record(found)

    async def _unknown(self, run_id: RunId) -> UnknownRun:
        deletion = await self._database.row("grave_of_run", run_id)
        return explain_missing_run(
            run_id, (None, None, None) if deletion is None else (deletion[0], deletion[1], deletion[2])
        )

    async def find(self, filter: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        name, values = choose_find_statement(filter, limit)
        found = await self._database.rows(name, *values)
        return [to_run_record(row) for row in found]

    async def list_unfinished(self, session_id: SessionId | None = None) -> Sequence[RunRecord]:
        return [to_run_record(row) for row in await self._database.rows("unfinished", session_id)]

    async def position(self) -> int:
        found = await self._database.row("feed_position")
        return 0 if found is None else int(found[0])

    async def after(
        self,
        position: int,
        agents: Sequence[str] | None = None,
        limit: int = 500,
        owner: UserId | None = None,
    ) -> Sequence[PositionedEvent]:
        names = None if agents is None else list(agents)
        rows = map(tuple, await self._database.rows("feed", position, names, limit, owner))
        return [PositionedEvent(row[0], to_event(Origin(*row[1:5]), row[5:])) for row in rows]

    async def find_submitted(self, key: str) -> RunId | None:
        found = await self._database.row("submitted", key)
        return None if found is None else RunId(found[0])

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        while (found := await self._database.row("agent", name, proposed)) is None:
            pass  # another process inserted it after the statement started
        return AgentId(found[0])


def choose_find_statement(wanted: RunFilter, limit: int) -> tuple[str, list[Any]]:
    """Return the name of the statement that finds runs, and its values."""
    labels = wanted.labels.pairs()
    values = [
        None if wanted.agents is None else list(wanted.agents),
        wanted.session_id,
        wanted.parent_run_id,
        wanted.status,
        wanted.outcome,
        wanted.before,
        wanted.unfinished,
        limit,
        None if wanted.owners is None else list(wanted.owners),
        wanted.id_prefix,
        wanted.since,
        wanted.until,
        wanted.text,
        wanted.min_cost,
    ]
    if not labels:
        return "find_runs", values
    return "find_labelled_runs", [*values, [name for name, _ in labels], [value for _, value in labels]]


def to_event(origin: Origin, record: tuple[Any, ...]) -> Event:
    sequence, event_id, timestamp, type_, version, raw = record
    return Event(
        event_id=event_id,
        timestamp=timestamp,
        origin=origin,
        sequence=sequence,
        type=type_,
        data=decode_data(type_, raw, version),
        raw=raw,
        version=version,
    )


def to_run_record(row: PostgresRow) -> RunRecord:
    run_id, session_id, agent_id, parent, status, outcome, created_at, wake_at, waiting_for, *rest = row
    sequence, agent, owner, message, cost, tokens, steps, duration_ms, labels = rest
    origin = Origin(run_id, session_id, agent_id, parent)
    return RunRecord(
        origin=origin,
        status=status,
        outcome=outcome,
        created_at=created_at,
        sequence=sequence,
        wake_at=wake_at,
        waiting_for=waiting_for,
        agent=unescape_nul(agent),
        owner=owner,
        message=message,
        cost=cost,
        tokens=tokens,
        steps=steps,
        duration_ms=duration_ms,
        labels=decode_labels(labels),
    )
