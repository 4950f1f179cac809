"""The file `vault.db`: private to its owner, with its schema and readable errors."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, cast

import apsw

from treadle.ports.vault import VaultError

APPLICATION_ID = 0x54524456
FORMAT = 1
BUSY_TIMEOUT_MS = 5000
PRIVATE = 0o600

Value = str | int | float | bytes | None


class VaultRows(Protocol):
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class VaultDatabase(Protocol):
    """The part of a connection that the vault uses."""

    def execute(self, statements: str, bindings: Sequence[Value] = ...) -> VaultRows: ...
    def changes(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def close(self) -> None: ...


def open_database(path: Path) -> VaultDatabase:
    """Return a connection to the vault, created if missing."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE))
        if path.stat().st_mode & 0o077:
            path.chmod(PRIVATE)
        connection = cast(VaultDatabase, apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE))
    except OSError as error:
        raise VaultError(
            f"The vault {path} cannot be opened: {error.strerror}. Check the file and its permissions."
        ) from None
    except apsw.Error as error:
        raise explain(error, path) from error
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # No write-ahead log: the vault is one small file, rarely written, and EXTRA makes each commit durable.
        for pragma in ("synchronous = EXTRA", "foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        _initialize(connection, path)
    except apsw.Error as error:
        connection.close()
        raise explain(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: VaultDatabase, path: Path, kind: str = "IMMEDIATE") -> Generator[None, None, None]:
    """Run the block in a transaction. A DEFERRED one reads a consistent snapshot."""
    try:
        connection.execute(f"BEGIN {kind}")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):  # SQLite may already have rolled back
                connection.execute("ROLLBACK")
            raise
    except apsw.Error as error:
        raise explain(error, path) from error


def explain(error: apsw.Error, path: Path) -> VaultError:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return VaultError(f"The vault {path} is locked by another program. Close that program and try again.")
        case apsw.CorruptError() | apsw.NotADBError():
            return VaultError(
                f"The vault {path} is damaged ({error}). Restore a copy of it, or move it away and set the "
                "secrets again."
            )
        case apsw.FullError():
            return VaultError(f"The disk is full: the vault {path} was not changed. Free some space.")
        case _:
            return VaultError(
                f"The vault {path} failed: {type(error).__name__}: {error}. Check the file and its permissions."
            )


def _initialize(connection: VaultDatabase, path: Path) -> None:
    if _identity(connection) == (APPLICATION_ID, FORMAT):
        return
    with transaction(connection, path):
        application, version = _identity(connection)
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == APPLICATION_ID and version == FORMAT:
            return  # another process was faster
        if application == APPLICATION_ID:
            raise VaultError(
                f"The vault {path} was written by a newer Treadle (format {version}; this one supports {FORMAT}). "
                "Install that version. Nothing was changed."
            )
        if application or tables != (0,):
            raise VaultError(f"{path} is a database of another program. Move it away. Nothing was changed.")
        connection.execute(resources.files("treadle.vault").joinpath("schema.sql").read_text())
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}")


def _identity(connection: VaultDatabase) -> tuple[int, int]:
    found = connection.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchone()
    return (int(found[0]), int(found[1])) if found else (0, 0)
