"""Database URLs."""

import re
from pathlib import Path

from treadle.domain.errors import UsageError

POSTGRES = ("postgresql://", "postgres://")


def is_postgres(database: str) -> bool:
    """Return whether the database is on a PostgreSQL server, which many processes can use."""
    return database.startswith(POSTGRES)


def mask_password(database: str) -> str:
    """Return the URL without a password."""
    without = re.sub(r"^([^:/?]+:(?://)?[^:@/?]*):.*@", r"\1@", database)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", without)


def sqlite_path(database: str) -> str:
    """Return the file that a SQLite URL names. Raise UsageError for any other URL."""
    scheme, separator, path = database.partition(":///")
    if separator and scheme == "sqlite" and path:
        return path
    is_file = "://" not in database or scheme.startswith("sqlite:")
    meant = f" Did you mean `sqlite:///{database.removeprefix('sqlite:').lstrip('/')}`?" if is_file else ""
    raise UsageError(
        f"`{mask_password(database)}` is not a supported database URL; accepted: sqlite:///PATH "
        f"(sqlite:////PATH from the root) or postgresql://USER:PASSWORD@HOST:PORT/DATABASE.{meant}"
    )


def is_in_memory(database: str) -> bool:
    """Return whether the database exists only in the memory of one process."""
    return not is_postgres(database) and sqlite_path(database) == ":memory:"


def check_persistent(database: str) -> None:
    """Raise UsageError for a database that is lost when the process ends."""
    if is_in_memory(database):
        raise UsageError(
            f"The database {database} is lost when this command ends, so nothing can be stored in it. Set "
            "TREADLE_DATABASE_URL to sqlite:///PATH, or leave it out for the database of the home."
        )


def check_has_files(database: str, what: str) -> None:
    """Raise UsageError, starting with `what`, for a database that does not consist of files."""
    if is_postgres(database):
        where = mask_password(database)
        raise UsageError(
            f"{what} The database {where} is kept by its server. Save it with `pg_dump --format=custom "
            f"--schema=treadle --file=treadle.dump '{where}'`, and put it back into an empty database, while "
            "nothing works on it, with `pg_restore --exit-on-error --single-transaction --no-owner "
            f"--dbname='{where}' treadle.dump`; copy the folder TREADLE_HOME for the agents, the skills and the "
            "vault."
        )


def list_database_files(database: str) -> tuple[Path, ...]:
    """Return the files of a database, which belong to Treadle wherever they are."""
    if is_postgres(database) or is_in_memory(database):
        return ()
    path = sqlite_path(database)
    return tuple([Path(f"{path}{suffix}").absolute() for suffix in ("", "-wal", "-shm", ".lock")])
