"""Workers that died while they owned runs."""

from treadle.domain.ids import Instant
from treadle.ports.journal import RECENT_DEATH_SECONDS, Death
from treadle.stores.sqlite.connection import SQL, SqliteDatabase

DEATH_RETENTION_SECONDS = 100 * RECENT_DEATH_SECONDS


def record_death(db: SqliteDatabase, run: int, worker: str, now: Instant) -> Death:
    """Record that a worker died while it owned this run; return what that says about the run."""
    db.execute(SQL["lose"], (worker, run))
    db.execute(SQL["forget_deaths"], (now - DEATH_RETENTION_SECONDS,))
    db.execute(SQL["record_death"], (worker, now, now - RECENT_DEATH_SECONDS, run))
    runs, lately = db.execute(SQL["death"], (worker, now - RECENT_DEATH_SECONDS, run)).fetchall()[0]
    return Death(alone=runs == 1, lately=lately)
