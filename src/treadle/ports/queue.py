"""Names and settings of PgQueuer's tables in the Treadle database, shared by the writer and the workers."""

from typing import Final

JOB = "run"
"""The entrypoint of all jobs: work on a run. The payload is the run id."""

NAMES: Final = {
    "prefix": "",
    "db_schema": "treadle",
    "channel": "treadle_queue",
    "function": "fn_pgqueuer_changed",
    "statistics_table": "pgqueuer_statistics",
    "queue_status_type": "pgqueuer_status",
    "queue_table": "pgqueuer",
    "queue_table_log": "pgqueuer_log",
    "trigger": "tg_pgqueuer_changed",
    "schedules_table": "pgqueuer_schedules",
    "durability": "volatile",
}
"""PgQueuer's settings. All are given, so no environment variable can change them.

`volatile`: jobs that are lost in a server crash are found by the sweep."""


def queue_version() -> str:
    """Return the version of the queue tables. They are created again when it changes."""
    from importlib.metadata import version

    return f"pgqueuer {version('pgqueuer')}, {NAMES['durability']}, {NAMES['channel']}"
