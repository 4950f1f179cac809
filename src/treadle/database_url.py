"""Where a database is, by its URL."""

from pathlib import Path

from treadle.domain.errors import UsageError


def path_of(database: str) -> str:
    """The file that a database URL names."""
    scheme, separator, path = database.partition(":///")
    if separator and scheme == "sqlite" and path:
        return path
    if database.startswith("postgresql:"):
        raise UsageError("PostgreSQL is not in this version yet; use sqlite:///PATH.")
    raise UsageError(
        f"`{database}` is not a database URL; accepted: sqlite:///PATH (sqlite:////PATH from the root)."
    )


def files_of(database: str) -> tuple[Path, ...]:
    """The files that a database consists of: they are Treadle's own, wherever they lie."""
    path = path_of(database)
    if path == ":memory:":
        return ()
    return tuple([Path(f"{path}{suffix}").absolute() for suffix in ("", "-wal", "-shm", ".lock")])
