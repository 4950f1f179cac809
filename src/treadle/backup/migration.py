"""Migration of a database to another kind of store."""

from collections.abc import Callable

from msgspec import Struct

from treadle.config.database_url import mask_password, sqlite_path
from treadle.domain.errors import UsageError

SOURCE, TARGETS = "sqlite:///", ("postgresql://", "postgres://")


class MigrationReport(Struct, frozen=True):
    """What was migrated, verified on both sides."""

    source: str
    """The file, which is unchanged."""
    rows: int
    tables: dict[str, int]
    """Rows per table."""


async def migrate_to_postgres(
    source: str, target: str, progress: Callable[[str, int, int], None]
) -> MigrationReport:
    """Copy everything from one database to another, which must be empty.

    `progress` receives a table, the number of its rows that are copied, and their total."""
    if not source.startswith(SOURCE):
        raise UsageError(
            f"`{mask_password(source)}` cannot be migrated; accepted: sqlite:///PATH "
            "(sqlite:////PATH from the root)."
        )
    if not target.startswith(TARGETS):
        raise UsageError("The target must be a server; accepted: postgresql://USER@HOST:PORT/DATABASE.")
    try:
        from treadle.stores.migrate.migration import migrate_database
    except ImportError as error:
        raise UsageError(
            f"PostgreSQL needs the extra `postgres` ({error}): pip install 'treadle[postgres]'."
        ) from error
    path = sqlite_path(source)
    moved = await migrate_database(path, target, progress)
    return MigrationReport(path, moved.rows, dict(moved.tables))
