"""One transaction over many runs. What all of them append is gathered and written with a few statements: each
statement gives the interpreter to other threads and must win it back, so fewer is faster for everyone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import UnknownRun
from treadle.domain.identity import Instant, RunId
from treadle.stores.sqlite.connection import Database, Value, load_statements

SQL = load_statements()
EVENT_COLUMNS = 7
ROWS_PER_STATEMENT = 64


@dataclass(slots=True)
class RunRow:
    """What an append must know of its run, as it stands within the transaction."""

    id: int
    origin: Origin
    status: str
    outcome: str | None
    sequence: int
    epoch: int
    worker: str | None
    lease_until: Instant | None


class Group:
    """The transaction, as the work in it sees it.

    Work that refuses does so before it has appended or executed anything, so that it leaves no trace."""

    def __init__(self, database: Database) -> None:
        self.db = database
        self._rows: dict[RunId, RunRow] = {}
        self._values: list[Value] = []
        self._moved: dict[int, int] = {}

    def preload(self, run_ids: Iterable[RunId]) -> None:
        """Read the rows of these runs with one statement."""
        wanted = msgspec.json.encode(list(run_ids)).decode()
        for found in self.db.execute(SQL["runs_of"], (wanted,)):
            self._keep(found)

    def run(self, run_id: RunId) -> RunRow:
        row = self._rows.get(run_id)
        if row is None:
            found = self.db.execute(SQL["run"], (run_id,)).fetchone()
            if found is None:
                raise unknown(run_id)
            row = self._keep(found)
        return row

    def forget(self) -> None:
        """Read rows anew: a statement has changed them."""
        self.flush()
        self._rows.clear()

    def append(self, row: RunRow, drafts: Sequence[Draft]) -> None:
        """Add events to a run. They are in the database after `flush`."""
        sequence, values = row.sequence, self._values
        for made in drafts:
            sequence += 1
            values += (row.id, sequence, made.event_id, made.timestamp, made.type, VERSION, made.raw)
        row.sequence = self._moved[row.id] = sequence

    def flush(self) -> None:
        """Write what was gathered."""
        width = EVENT_COLUMNS * ROWS_PER_STATEMENT
        for at in range(0, len(self._values), width):
            part = self._values[at : at + width]
            self.db.execute(_insert_events(len(part) // EVENT_COLUMNS), part)
        self._values = []
        moved = [value for pair in self._moved.items() for value in pair]
        for at in range(0, len(moved), 2 * ROWS_PER_STATEMENT):
            part = moved[at : at + 2 * ROWS_PER_STATEMENT]
            self.db.execute(_move_runs(len(part) // 2), part)
        self._moved = {}

    def _keep(self, found: tuple[Any, ...]) -> RunRow:
        id_, run_id, session_id, agent_id, parent, status, outcome, sequence, epoch, worker, lease_until = found
        origin = Origin(run_id, session_id, agent_id, parent)
        row = RunRow(id_, origin, status, outcome, sequence, epoch, worker, lease_until)
        self._rows[run_id] = row
        return row


@cache
def _insert_events(rows: int) -> str:
    return SQL["insert_events"] + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * rows)


@cache
def _move_runs(rows: int) -> str:
    values = ", ".join(["(?, ?)"] * rows)
    return SQL["move_runs"].replace(":moved", values)


def unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")
