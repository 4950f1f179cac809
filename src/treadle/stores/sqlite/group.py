"""One transaction over many runs. What all of them append is gathered and written with a few statements: each
statement gives the interpreter to other threads and must win it back, so fewer is faster for everyone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import UnknownRun
from treadle.domain.identity import Instant, RunId
from treadle.stores.sqlite.connection import SQL, Database, Value
from treadle.stores.sqlite.projections import PROJECTIONS

EVENT_COLUMNS = 7
ROWS_PER_STATEMENT = 64


@dataclass(slots=True)
class RunRow:
    """What an append must know of its run, as it stands within the transaction."""

    id: int
    origin: Origin
    status: str
    outcome: str | None
    epoch: int
    worker: str | None
    lease_until: Instant | None
    sequence: int


class Owned:
    """The rows of the runs that are owned here, kept from one transaction to the next: an owner advances its run
    again and again. They are what the database holds as long as nobody else has written to it."""

    def __init__(self) -> None:
        self.rows: dict[RunId, RunRow] = {}
        self._version = 0

    def begin(self, database: Database) -> None:
        """At the start of a transaction: forget what may not be so any more."""
        if database.data_version() != self._version:
            self.rows.clear()

    def commit(self, database: Database) -> None:
        """A transaction was committed."""
        self._version = database.data_version()


class Group:
    """The transaction, as the work in it sees it.

    Work that refuses does so before it has appended or executed anything, so that it leaves no trace."""

    def __init__(self, database: Database, owned: Owned) -> None:
        self.db = database
        self._owned = owned.rows
        self._rows: dict[RunId, RunRow] = {}
        self._values: list[Value] = []

    def run(self, run_id: RunId) -> RunRow:
        row = self._owned.get(run_id) or self._rows.get(run_id)
        if row is None:
            row = self._rows[run_id] = read_row(self.db, run_id)
        return row

    def own(self, row: RunRow) -> None:
        """The run is about to be advanced again and again."""
        self._owned[row.origin.run_id] = row

    def let_go(self, row: RunRow) -> None:
        self._owned.pop(row.origin.run_id, None)
        self._rows[row.origin.run_id] = row

    def forget(self) -> None:
        """Read rows anew: a statement has changed them."""
        self.flush()
        self._rows.clear()
        self._owned.clear()

    def append(self, row: RunRow, drafts: Sequence[Draft]) -> None:
        """Add events to a run. They are in the database after `flush`."""
        sequence, values = row.sequence, self._values
        for made in drafts:
            sequence += 1
            values += (row.id, sequence, made.event_id, made.timestamp, made.type, VERSION, made.raw)
            if made.type in PROJECTIONS:
                PROJECTIONS[made.type](self.db, row.id, made)
        row.sequence = sequence

    def flush(self) -> None:
        """Write what was gathered."""
        width = EVENT_COLUMNS * ROWS_PER_STATEMENT
        for at in range(0, len(self._values), width):
            part = self._values[at : at + width]
            self.db.execute(_insert_events(len(part) // EVENT_COLUMNS), part)
        self._values = []


@cache
def _insert_events(rows: int) -> str:
    return SQL["insert_events"] + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * rows)


def read_row(database: Database, run_id: RunId) -> RunRow:
    found = database.execute(SQL["run"], (run_id,)).fetchone()
    if found is None:
        raise unknown(run_id)
    id_, session_id, agent_id, parent, *rest = found
    return RunRow(id_, Origin(run_id, session_id, agent_id, parent), *rest)


def unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")
