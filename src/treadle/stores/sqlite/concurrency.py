"""The places of agents on SQLite, as parts of the transaction of a claim or a release."""

from treadle.domain.ids import Instant, RunId
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import RunRow

Wakes = tuple[tuple[RunId, Instant], ...]
"""Which runs should be looked at, and when."""


def count_other_owned_runs(db: SqliteDatabase, row: RunRow) -> int:
    """How many other runs of its agent are owned."""
    [(taken,)] = db.execute(SQL["places_taken"], (row.origin.agent_id, row.id)).fetchall()
    return int(taken)


def find_unblocked_runs(db: SqliteDatabase, row: RunRow, now: Instant) -> Wakes:
    """The runs of its agent for which there is a place, now that it was let go of. One without a limit asks for
    nobody: where its agent has one since, the sweep finds who waits."""
    if row.places is None:
        return ()
    found = db.execute(SQL["next_of_agent"], (row.origin.agent_id, now, row.places or 1)).fetchall()
    return tuple([(RunId(str(run_id)), now) for (run_id,) in found])
