"""`treadle migrate`: copy a SQLite database to PostgreSQL."""

import time
from typing import TYPE_CHECKING, Annotated

from treadle.surfaces.cli.command_line import Argument, Group
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.terminal.output import alert, format_count, note, print_json
from treadle.surfaces.terminal.text import is_terminal

if TYPE_CHECKING:
    from treadle.backup.migration import MigrationReport

PROGRESS_INTERVAL_SECONDS = 2.0
group = Group()


@group.command("migrate")
async def migrate(
    source: Annotated[str, Argument(metavar="SOURCE", help="sqlite:///PATH. No other process may have it open.")],
    target: Annotated[
        str,
        Argument(
            metavar="TARGET",
            help="postgresql://USER@HOST:PORT/DATABASE. It must be empty. The password can be in PGPASSWORD.",
        ),
    ],
    json: Json = False,
) -> int:
    """Copy a database with its whole history to PostgreSQL and verify all rows.

    Run the same command again to resume an interrupted migration. SOURCE is not changed."""
    from treadle.backup.migration import migrate_to_postgres

    report = await migrate_to_postgres(source, target, _Progress())
    if json:
        print_json(report)
        return 0
    note(f"Copied and verified, row by row: {_contents(report)}.")
    alert(
        f"From now on set TREADLE_DATABASE_URL to the new database. {report.source} is unchanged; the vault, "
        "settings, agents and skills stay in the home."
    )
    return 0


def _contents(report: "MigrationReport") -> str:
    kinds = (("run", "runs"), ("event", "events"), ("memory", "memories"))
    counts = [format_count(report.tables[plural], one, plural) for one, plural in kinds]
    return f"{', '.join(counts)}; {format_count(report.rows, 'row')} in all"


class _Progress:
    """Prints the progress of a migration on a terminal: each table when it is done, and at times before."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, table: str, done: int, total: int) -> None:
        is_due = done == total or time.monotonic() - self._last > PROGRESS_INTERVAL_SECONDS
        if total and is_terminal() and is_due:
            self._last = time.monotonic()
            note(f"Copying {table}: {done} of {total}")
