"""One transaction over many runs. What all of them append is gathered and written with a few statements: each
statement gives the interpreter to other threads and must win it back, so fewer is faster for everyone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from treadle.domain.envelope import VERSION, Draft, Origin
from treadle.domain.errors import UnknownRun
from treadle.domain.identity import Instant, RunId
from treadle.stores.sqlite.connection import Database, Value, load_statements

SQL = load_statements()
EVENT_COLUMNS = 7
ROWS_PER_STATEMENT = 64


_Mutable = tuple[int, str, str | None, int, int, str | None, float | None]
_decode_rows = msgspec.json.Decoder(list[_Mutable]).decode


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


class Known:
    """What never changes of the runs that are owned here, kept from one transaction to the next. It is right also
    when the transaction that learned it was not committed."""

    def __init__(self) -> None:
        self.numbers: dict[RunId, int] = {}
        self.origins: dict[int, Origin] = {}


class Group:
    """The transaction, as the work in it sees it.

    Work that refuses does so before it has appended or executed anything, so that it leaves no trace."""

    def __init__(self, database: Database, known: "Known") -> None:
        self.db = database
        self._known = known
        self._rows: dict[RunId, RunRow] = {}
        self._values: list[Value] = []
        self._moved: dict[int, int] = {}

    def preload(self, run_ids: Iterable[RunId]) -> None:
        """Read the rows of these runs with one statement, those at least that are known by their number."""
        known, numbers = self._known, list[int]()
        for run_id in run_ids:
            if (found := known.numbers.get(run_id)) is not None:
                numbers.append(found)
        if not numbers:
            return
        wanted = msgspec.json.encode(numbers).decode()
        found = self.db.execute(SQL["rows_of"], (wanted,)).fetchone()  # one row, not many: each costs a lock
        for row in _decode_rows(found[0] if found else "[]"):
            origin = known.origins[row[0]]
            self._rows[origin.run_id] = RunRow(row[0], origin, row[1], row[2], row[3], row[4], row[5], row[6])

    def run(self, run_id: RunId) -> RunRow:
        row = self._rows.get(run_id)
        if row is None:
            found = self.db.execute(SQL["run"], (run_id,)).fetchone()
            if found is None:
                raise unknown(run_id)
            id_, session_id, agent_id, parent, *rest = found
            origin = Origin(run_id, session_id, agent_id, parent)
            row = self._rows[run_id] = RunRow(id_, origin, *rest)
        return row

    def owned(self, row: RunRow) -> None:
        """Remember what does not change of a run that is about to be advanced again and again."""
        self._known.numbers[row.origin.run_id] = row.id
        self._known.origins[row.id] = row.origin

    def let_go(self, row: RunRow) -> None:
        self._known.numbers.pop(row.origin.run_id, None)
        self._known.origins.pop(row.id, None)

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


@cache
def _insert_events(rows: int) -> str:
    return SQL["insert_events"] + ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * rows)


@cache
def _move_runs(rows: int) -> str:
    values = ", ".join(["(?, ?)"] * rows)
    return SQL["move_runs"].replace(":moved", values)


def unknown(run_id: RunId) -> UnknownRun:
    return UnknownRun(f"There is no run {run_id} in this database. `treadle runs list` shows those there are.")
