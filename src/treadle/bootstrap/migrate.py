"""How a database is moved to another kind of store."""

from collections.abc import Callable

from msgspec import Struct

from treadle.config.database_url import mask_password, sqlite_path
from treadle.domain.errors import UsageError

SOURCE, TARGETS = "sqlite:///", ("postgresql://", "postgres://")


class MigrationReport(Struct, frozen=True):
    """What was moved, and is the same on both sides."""

    source: str
    """The file, which is left as it was."""
    rows: int
    tables: dict[str, int]
    """The rows of each."""


async def migrate_to_postgres(
    source: str, target: str, progress: Callable[[str, int, int], None]
) -> MigrationReport:
    """Move all that the one has to the other, which must be empty. `progress` is told of a table, how many of its
    rows are there, and how many there are."""
    if not source.startswith(SOURCE):
        raise UsageError(
            f"`{mask_password(source)}` cannot be moved; accepted: sqlite:///PATH (sqlite:////PATH from the root)."
        )
    if not target.startswith(TARGETS):
        raise UsageError("What is moved goes to a server; accepted: postgresql://USER@HOST:PORT/DATABASE.")
    try:
        from treadle.stores.migrate.migration import migrate_database
    except ImportError as error:
        raise UsageError(
            f"PostgreSQL needs the extra `postgres` ({error}): pip install 'treadle[postgres]'."
        ) from error
    path = sqlite_path(source)
    moved = await migrate_database(path, target, progress)
    return MigrationReport(path, moved.rows, dict(moved.tables))
