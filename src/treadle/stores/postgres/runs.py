"""Queries for runs and their events on PostgreSQL."""

from collections.abc import Sequence
from typing import Any

from treadle.domain.envelope import Event, Origin, decode_data
from treadle.domain.errors import UnknownRun
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.runs import is_ended
from treadle.domain.users import UserId
from treadle.ports.journal import ALL_RUNS, PositionedEvent, RunFilter, RunRecord, RunSums, Submitted
from treadle.stores.postgres.batch import explain_missing_run
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow
from treadle.stores.run_facts import decode_facts, decode_labels
from treadle.stores.search_parts import FEW_RUNS, hash_part, list_query_parts


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
        few, agents = await self.find_few(filter), await self.find_agents(filter)
        name, values = choose_find_statement(filter, limit, agents, few)
        found = await self._database.rows(name, *values)
        return [to_run_record(row) for row in found]

    async def sum(self, filter: RunFilter = ALL_RUNS) -> RunSums:
        agents, few = await self.find_agents(filter), await self.find_few(filter)
        row = await self._database.row("sum_runs", *_list_conditions(filter, agents, few))
        assert row is not None, "an aggregate has one row"
        return RunSums(*row)

    async def find_agents(self, wanted: RunFilter) -> Sequence[str] | None:
        """Return the ids of the agents of a filter."""
        if wanted.agents is None:
            return None
        return [str(row[0]) for row in await self._database.rows("agent_ids", list(wanted.agents))]

    async def find_few(self, wanted: RunFilter) -> Sequence[int] | None:
        """Return the numbers of the runs that have the text or the cost, if they are few."""
        if wanted.labels.pairs():  # which select fewer
            return None
        if wanted.text is not None and (parts := list_query_parts(wanted.text, wanted.only_owner)):
            rows = await self._database.rows("runs_by_text", [hash_part(part) for part in parts], FEW_RUNS)
            if len(rows) < FEW_RUNS:
                return list({int(row[0]) for row in rows})
        if wanted.min_cost is not None:
            rows = await self._database.rows("runs_by_cost", wanted.min_cost, FEW_RUNS)
            if len(rows) < FEW_RUNS:
                return [int(row[0]) for row in rows]
        return None

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

    async def find_submitted(self, key: str) -> Submitted | None:
        found = await self._database.row("submitted", key)
        return None if found is None else Submitted(RunId(found[0]), found[1])

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        while (found := await self._database.row("agent", name, proposed)) is None:
            pass  # another process inserted it after the statement started
        return AgentId(found[0])


def choose_find_statement(
    wanted: RunFilter, limit: int, agent_ids: Sequence[str] | None, among: Sequence[int] | None
) -> tuple[str, list[Any]]:
    """Return the name of the statement that finds runs, and its values: with the ids of its agents, and the numbers
    of the runs that match its text or its cost if they are few."""
    if wanted.order != "created":
        values = _list_conditions(wanted, agent_ids, among)
        return "find_sorted_runs", [*values, wanted.order, wanted.ascending, wanted.before, limit]
    has_live_status = wanted.status is not None and not is_ended(wanted.status)
    labels = wanted.labels.pairs()
    values = [
        None if agent_ids is None else list(agent_ids),
        wanted.session_id,
        wanted.parent_run_id,
        wanted.status,
        wanted.outcome,
        wanted.before,
        wanted.unfinished or has_live_status,
        limit,
        None if wanted.owners is None else list(wanted.owners),
        _make_id_pattern(wanted),
        wanted.since,
        wanted.until,
        wanted.text,
        wanted.min_cost,
    ]
    if labels:
        return "find_labelled_runs", [*values, [name for name, _ in labels], [value for _, value in labels]]
    is_timed = among is None and (wanted.since is not None or wanted.until is not None)
    only_ended = wanted.status is not None and not has_live_status
    name = "find_runs_by_time" if is_timed else "find_runs"
    return name, [*values, only_ended, None if among is None else list(among)]


def _list_conditions(wanted: RunFilter, agent_ids: Sequence[str] | None, among: Sequence[int] | None) -> list[Any]:
    """Return the values of the conditions that all runs of a sorted list or a sum match."""
    has_live_status = wanted.status is not None and not is_ended(wanted.status)
    labels = wanted.labels.pairs()
    return [
        None if agent_ids is None else list(agent_ids),
        wanted.session_id,
        wanted.parent_run_id,
        wanted.status,
        wanted.outcome,
        wanted.unfinished or has_live_status,
        None if wanted.owners is None else list(wanted.owners),
        _make_id_pattern(wanted),
        wanted.since,
        wanted.until,
        wanted.text,
        wanted.min_cost,
        wanted.status is not None and not has_live_status,
        None if among is None else list(among),
        [name for name, _ in labels],
        [value for _, value in labels],
    ]


def _make_id_pattern(wanted: RunFilter) -> str | None:
    if wanted.id_prefix is None and wanted.id_suffix is None:
        return None
    return f"{_escape(wanted.id_prefix)}%{_escape(wanted.id_suffix)}"


def _escape(part: str | None) -> str:
    return (part or "").replace("%", r"\%").replace("_", r"\_")


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
    sequence, agent, owner, message, cost, tokens, steps, duration_ms, labels, facts = rest
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
        facts=decode_facts(facts),
    )
