"""Concurrency limits of agents on SQLite, checked in the transaction of a claim or release."""

from treadle.domain.ids import Instant, RunId
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import RunRow

Wakes = tuple[tuple[RunId, Instant], ...]
"""Runs to poll, and when."""


def count_other_owned_runs(db: SqliteDatabase, row: RunRow) -> int:
    """Return how many other runs of the agent are owned."""
    [(taken,)] = db.execute(SQL["places_taken"], (row.origin.agent_id, row.id)).fetchall()
    return int(taken)


def find_unblocked_runs(db: SqliteDatabase, row: RunRow, now: Instant) -> Wakes:
    """Return the runs of the agent that the concurrency limit no longer blocks after this run was released. A run
    without a limit unblocks none; if its agent has a limit since, the sweep finds the waiting runs."""
    if row.places is None:
        return ()
    found = db.execute(SQL["next_of_agent"], (row.origin.agent_id, now, row.places or 1)).fetchall()
    return tuple([(RunId(str(run_id)), now) for (run_id,) in found])
