"""One transaction over many runs. The events of all runs are collected and written with a few statements: each
statement releases the interpreter lock and must reacquire it, so fewer statements are faster for all threads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from treadle.domain.envelope import VERSION, Draft, Event, Origin, decode_data
from treadle.domain.errors import RunDeleted, SessionDeleted, UnknownRun
from treadle.domain.events import RunEnd
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.time_format import format_minute
from treadle.ports.journal import RunDraft, RunRecord
from treadle.stores.run_facts import decode_facts, decode_labels, explain_taken_session, read_owner_of_run
from treadle.stores.sqlite.connection import SQL, SqliteDatabase, Value
from treadle.stores.sqlite.projections import PROJECTIONS, project_end, project_progress
from treadle.stores.sqlite.reservations import settle, settle_lost_call
from treadle.stores.sqlite.usage_counts import UsageSums
from treadle.stores.usage_counts import CALL_ENDS, COUNTERS, Payer, rebuild_payer

EVENT_COLUMNS = 8
ROWS_PER_STATEMENT = 64


@dataclass(slots=True)
class RunRow:
    """The row of a run as it stands within the transaction."""

    id: int
    origin: Origin
    status: str
    outcome: str | None
    epoch: int
    worker: str | None
    lease_until: Instant | None
    sequence: int
    counted: int
    """The last sequence whose usage is written."""
    places: int | None
    """The concurrency limit of the agent; None for no limit."""


class OwnedRows:
    """The rows of the runs that this process owns, cached across transactions because an owner advances its run
    repeatedly. They equal the database as long as no other connection writes to it."""

    def __init__(self) -> None:
        self.rows: dict[RunId, RunRow] = {}
        self.payers: dict[RunId, Payer] = {}
        """Usage counters of the runs; only the owner of a run adds to them."""
        self.position = -1
        """The position of the latest event over all runs, or -1 to look it up. A position is never reused, even
        after deletions."""
        self._version = 0

    def begin(self, database: SqliteDatabase) -> None:
        """Drop what may be stale at the start of a transaction."""
        if database.data_version() != self._version:
            self.rows.clear()
            self.position = -1

    def commit(self, database: SqliteDatabase) -> None:
        """Record that a transaction was committed."""
        self._version = database.data_version()

    def forget(self) -> None:
        """Drop everything after a transaction was rolled back."""
        self.position = -1
        self.rows.clear()
        self.payers.clear()


class Transaction:
    """The transaction as the work in it sees it.

    Work that raises a TreadleError does so before it appends or executes anything, so it leaves no trace."""

    def __init__(self, database: SqliteDatabase, owned: OwnedRows) -> None:
        self.db = database
        self._kept = owned
        self._owned = owned.rows
        self._payers = owned.payers
        self._rows: dict[RunId, RunRow] = {}
        self._values: list[Value] = []
        self._used = UsageSums()

    def run(self, run_id: RunId) -> RunRow:
        row = self._owned.get(run_id) or self._rows.get(run_id)
        if row is None:
            row = self._rows[run_id] = read_run_row(self.db, run_id)
        return row

    def own(self, row: RunRow) -> None:
        """Cache the row of a run that this process now owns."""
        self._owned[row.origin.run_id] = row

    def adopt(self, row: RunRow, events: Sequence[Any], now: Instant) -> None:
        """Start counting the usage of a run with a new owner, given all of its events, and settle earlier
        reservations."""
        payer = self._payers[row.origin.run_id] = rebuild_payer(events, row.counted)
        if payer.is_bounded:
            settle_lost_call(self.db, row.id, now)

    def release(self, row: RunRow, has_ended: bool) -> None:
        """Write the usage of a run that is released."""
        payer = self._payer(row)
        if (rows := payer.take()) and not has_ended:  # the summary of an ended run has its final sums
            project_progress(self.db, row.id, payer.build_progress(rows))
        self._used.add(rows)
        row.counted = row.sequence
        self._owned.pop(row.origin.run_id, None)
        self._payers.pop(row.origin.run_id, None)
        self._rows[row.origin.run_id] = row

    def forget(self) -> None:
        """Drop all cached rows, because a statement changed them."""
        self.flush()
        self._rows.clear()
        self._owned.clear()

    def append(self, row: RunRow, drafts: Sequence[Draft]) -> None:
        """Add events to a run. They are in the database after `flush`."""
        sequence, position, values = row.sequence, self._kept.position, self._values
        if position < 0:
            [(position,)] = self.db.execute(SQL["latest_position"]).fetchall()
        for draft in drafts:
            sequence, position = sequence + 1, position + 1
            values += (position, row.id, sequence, draft.event_id, draft.timestamp, draft.type, VERSION, draft.raw)
            if draft.type in PROJECTIONS:
                PROJECTIONS[draft.type](self.db, row.id, draft)
            if draft.type in COUNTERS:
                self._count(row, draft, sequence)
        row.sequence, self._kept.position = sequence, position

    def _count(self, row: RunRow, draft: Draft, sequence: int) -> None:
        payer = self._payer(row)
        COUNTERS[draft.type](payer, draft.data, draft.timestamp)
        if payer.is_bounded and draft.type in CALL_ENDS:
            settle(self.db, row.id, draft, payer.rate)
        if isinstance(draft.data, RunEnd):
            project_end(self.db, row.id, draft.data, payer.model)
        elif payer.is_due(draft.timestamp):
            rows = payer.take()
            self._used.add(rows)
            project_progress(self.db, row.id, payer.build_progress(rows))
            row.counted = sequence
            self.db.execute(SQL["counted_up_to"], (sequence, row.id))

    def _payer(self, row: RunRow) -> Payer:
        payer = self._payers.get(row.origin.run_id)
        if payer is None:  # it was dropped with a transaction that was rolled back
            stored = self.db.execute(SQL["events_after"], (row.id, 0, -1)).fetchall()
            payer = self._payers[row.origin.run_id] = rebuild_payer(stored, row.counted)
        return payer

    def finish(self) -> None:
        """Write everything collected before the commit."""
        self.flush()
        self._used.write(self.db)

    def flush(self) -> None:
        """Write the collected events."""
        width = EVENT_COLUMNS * ROWS_PER_STATEMENT
        for at in range(0, len(self._values), width):
            part = self._values[at : at + width]
            self.db.execute(_insert_events(len(part) // EVENT_COLUMNS), part)
        self._values = []


@cache
def _insert_events(rows: int) -> str:
    return SQL["insert_events"] + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * rows)


def read_run_row(database: SqliteDatabase, run_id: RunId) -> RunRow:
    found = database.execute(SQL["run"], (run_id,)).fetchone()
    if found is None:
        raise explain_missing_run(database, run_id)
    id_, session_id, agent_id, parent, *rest = found
    return RunRow(id_, Origin(run_id, session_id, agent_id, parent), *rest)


def explain_missing_run(database: SqliteDatabase, run_id: RunId) -> UnknownRun:
    """Return the error for a run that does not exist: it is unknown, or it was deleted."""
    if found := database.execute(SQL["tombstone_of_run"], (run_id,)).fetchone():
        session_id, at, by = found
        return RunDeleted(
            f"{run_id} was deleted with its session {session_id} on {format_minute(at)} by {by}. "
            "Its data was removed."
        )
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows all runs.")


def explain_deleted_session(database: SqliteDatabase, session_id: SessionId) -> SessionDeleted:
    """Return the error for a session that was deleted and cannot be used again."""
    found = database.execute(SQL["tombstone"], (session_id,)).fetchone()
    when = "" if found is None else f" on {format_minute(found[-2])} by {found[-1]}"
    return SessionDeleted(f"{session_id} was deleted{when}. Start another session.")


def require_usable_session(database: SqliteDatabase, new: RunDraft) -> None:
    """Raise SessionDeleted or SessionTaken if the session of a new run was deleted or belongs to another owner."""
    session_id = new.origin.session_id
    if database.execute(SQL["tombstone"], (session_id,)).fetchone() is not None:
        raise explain_deleted_session(database, session_id)
    found = database.execute(SQL["owner_of_session"], (session_id,)).fetchone()
    if found is not None and found[0] != read_owner_of_run(new.events):
        raise explain_taken_session(session_id)


def to_event(origin: Origin, record: Any) -> Event:
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


def to_run_record(row: Any) -> RunRecord:
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
        agent=agent,
        owner=owner,
        message=message,
        cost=cost,
        tokens=tokens,
        steps=steps,
        duration_ms=duration_ms,
        labels=decode_labels(labels),
        facts=decode_facts(facts),
    )
