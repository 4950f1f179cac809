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


def is_in_memory(database: str) -> bool:
    """Whether it is nowhere but in the memory of one process."""
    return path_of(database) == ":memory:"


def refuse_passing(database: str) -> None:
    """Raise UsageError for a database that is gone with the process: nothing can be kept in it."""
    if is_in_memory(database):
        raise UsageError(
            f"The database {database} is gone when this command ends: there is nothing to keep. Set "
            "TREADLE_DATABASE_URL to sqlite:///PATH, or leave it out for the database of the home."
        )


def files_of(database: str) -> tuple[Path, ...]:
    """The files that a database consists of: they are Treadle's own, wherever they lie."""
    path = path_of(database)
    if path == ":memory:":
        return ()
    return tuple([Path(f"{path}{suffix}").absolute() for suffix in ("", "-wal", "-shm", ".lock")])
