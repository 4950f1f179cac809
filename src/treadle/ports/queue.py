"""PgQueuer's tables in our database: what whoever writes jobs and whoever takes them must agree on."""

from importlib.metadata import version
from typing import Final

JOB = "run"
"""The kind of all our jobs: look at a run. Its payload is the id."""

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
"""Its settings. All of them are given, so that no variable of the environment changes any. `volatile`: what a crash
of the server takes from the queue is found by the sweep."""


def queue_version() -> str:
    """What the tables are made for: they are made anew for another."""
    return f"pgqueuer {version('pgqueuer')}, {NAMES['durability']}, {NAMES['channel']}"
