"""`treadle migrate`: a database of SQLite moves to PostgreSQL."""

import time

from treadle.bootstrap.migrate import MigrationReport, migrate_to_postgres
from treadle.surfaces.cli.event_output import note, say
from treadle.surfaces.cli.terminal import is_terminal, print_json

SECONDS = 2.0
"""So often a table that takes long is told of."""


async def migrate(source: str, target: str, json: bool) -> int:
    moved = await migrate_to_postgres(source, target, _Told())
    if json:
        print_json(moved)
    else:
        note(f"moved and checked, row by row: {_held(moved)}")
        say(
            f"From now on set TREADLE_DATABASE_URL to the new database. {moved.source} is left as it was; the "
            "vault, settings, agents and skills stay in the home."
        )
    return 0


def _held(moved: MigrationReport) -> str:
    kinds = ("runs", "events", "memories")
    return ", ".join(f"{moved.tables[kind]} {kind}" for kind in kinds) + f"; {moved.rows} rows in all"


class _Told:
    """Tells a person at a terminal how far it has come: of each table when it is done, and now and then before."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, table: str, done: int, total: int) -> None:
        if total and is_terminal() and (done == total or time.monotonic() - self._last > SECONDS):
            self._last = time.monotonic()
            note(f"moving {table}: {done} of {total}")
