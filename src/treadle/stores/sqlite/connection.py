"""Opening a SQLite file: integrity check, migration, and errors that say what failed and what to do."""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
import msgspec

from treadle.domain.errors import StoreDamaged, StoreError, StoreFull, StoreLocked
from treadle.stores import baseline

Value = str | int | float | bytes | None


class SqliteRows(Protocol):
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...


class SqliteDatabase(Protocol):
    """The part of a connection that Treadle uses."""

    def execute(self, statements: str, bindings: Sequence[Value] = ...) -> SqliteRows: ...
    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Value]]) -> SqliteRows: ...
    def data_version(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def config(self, op: int, *args: int) -> int: ...
    def enable_load_extension(self, enable: bool, /) -> None: ...
    def load_extension(self, filename: str, /) -> None: ...
    def close(self) -> None: ...


UNREADABLE = (apsw.Error, UnicodeDecodeError, msgspec.DecodeError)
"""Errors of reading: SQLite fails, or a damaged page holds something else than what was written."""
APPLICATION_ID = 0x5452444C
BASELINE_VERSION = 16
"""The schema version that the first migration makes. No release has used a lower one."""
BUSY_TIMEOUT_MS = 5000
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "temp_store = MEMORY",
    "secure_delete = ON",  # overwrite deleted content; free for the append-only journal
)
MAX_CHECKED_BYTES = 64 * 2**20
"""A larger file is only checked after a process died on it, because the check reads the whole file."""


def load_statements() -> dict[str, str]:
    """Return the named statements of the .sql files of this package."""
    folder, found = resources.files("treadle.stores.sqlite"), dict[str, str]()
    for file in (entry for entry in folder.iterdir() if entry.name.endswith(".sql")):
        parts = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)
        found |= {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


SQL = load_statements()


def load_migrations() -> list[str]:
    """Return the migrations in order. The first one makes the baseline."""
    folder = resources.files("treadle.stores.sqlite").joinpath("migrations")
    return [entry.read_text() for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)]


def count_applied(version: int) -> int:
    """Return how many migrations lead to a schema version; 0 is that of an empty file."""
    return max(version - BASELINE_VERSION + 1, 0)


def current_version() -> int:
    """Return the schema version of this code."""
    return BASELINE_VERSION + len(load_migrations()) - 1


def connect(path: str, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> SqliteDatabase:
    return cast(SqliteDatabase, apsw.Connection(path, flags))


def _make_private(path: str) -> None:
    """Create the file readable by its owner only, if it does not exist. SQLite gives its companion files the same
    mode."""
    if path != ":memory:":
        with suppress(OSError):  # opening the file reports the error
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def open_database(path: str) -> SqliteDatabase:
    """Return a connection to a sound and migrated database, created if missing. Raise StoreError with the cause and
    the remedy."""
    was_killed = Path(f"{path}-wal").exists()
    try:
        _make_private(path)
        connection = connect(path)
    except apsw.Error as error:
        raise explain(error, path) from error
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # leave a rejected file unchanged
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        refuse_foreign(connection, path)
        refuse_version(connection, f"The database {path}")
        if path != ":memory:":
            _check(connection, path, was_killed)
        apply_pragmas(connection)
        _migrate(connection)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.Error as error:
        connection.close()
        raise explain(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_read_only(path: str) -> SqliteDatabase:
    """Return a read-only connection that works while another process owns the database. If there is no database
    yet, return an empty one in memory."""
    if path == ":memory:" or not Path(path).exists():
        return open_database(":memory:")
    try:
        connection = open_reader(path)
        refuse_foreign(connection, path)
        refuse_version(connection, f"The database {path}")
        version = _version(connection)
        if version == 0:
            connection.close()
            return open_database(":memory:")
        if version < current_version():
            raise StoreError(f"The database {path} has an older schema. Run `treadle run` to migrate it.")
    except apsw.Error as error:
        raise explain(error, path) from error
    return connection


def open_reader(path: str) -> SqliteDatabase:
    connection = connect(path, apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def apply_pragmas(connection: SqliteDatabase) -> None:
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def explain(error: Exception, path: str) -> StoreError:
    """Return a database error as a StoreError with the cause and the remedy."""
    if Path(path).is_dir():
        return StoreError(
            f"The database {path} is a folder. Move it away, or name another file in TREADLE_DATABASE_URL."
        )
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(
                f"The database {path} is locked by another program (for more than {BUSY_TIMEOUT_MS // 1000} s). "
                "Close that program and try again."
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return _explain_damage(path, str(error))
        case UnicodeDecodeError() | msgspec.DecodeError():
            return _explain_damage(path, f"a row cannot be decoded: {error}")
        case apsw.FullError():
            return StoreFull(
                f"Writing to {path} failed: the disk is full. Free some space. Acknowledged work is safe."
            )
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            return StoreError(
                f"The database {path} cannot be opened for writing: {error}. Check the path and its permissions."
            )
        case _:
            return StoreError(f"The database {path} failed: {type(error).__name__}: {error}")


def refuse_foreign(connection: SqliteDatabase, path: str) -> None:
    """Raise StoreError if the file belongs to another program."""
    found = connection.execute(
        "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
    )
    application, tables = found.fetchone() or (0, 0)
    if application != APPLICATION_ID and (application or tables):
        raise StoreError(
            f"{path} is a SQLite database of another program. Nothing was changed. Name another file in "
            "TREADLE_DATABASE_URL."
        )


def refuse_version(connection: SqliteDatabase, what: str) -> None:
    """Raise StoreNewer or StoreOutdated if this code cannot open the database."""
    baseline.refuse_version(what, _version(connection), BASELINE_VERSION, current_version())


def _version(connection: SqliteDatabase) -> int:
    found = connection.execute("PRAGMA user_version").fetchone()
    return int(found[0]) if found else 0


def _check(connection: SqliteDatabase, path: str, was_killed: bool) -> None:
    if not was_killed and Path(path).stat().st_size > MAX_CHECKED_BYTES:
        return
    found = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found is None or found[0] != "ok":
        raise _explain_damage(path, str(found[0] if found else "the check failed").splitlines()[-1])


def _explain_damage(path: str, found: str) -> StoreDamaged:
    folder, name = Path(path).parent, glob.escape(Path(path).name)
    backups = sorted(folder.glob(f"{name}*.bak"), key=lambda file: file.stat().st_mtime)
    copies = (
        f"The newest backup next to it is {backups[-1]}: move the damaged file away, then copy the backup there."
        if backups
        else "There is no backup (*.bak) next to it: move the file away and start over with --new, or recover what "
        f"is readable with: sqlite3 {path} .recover"
    )
    remedy = f"Restore a backup made by `treadle backup` with: treadle restore FILE --force. {copies}"
    return StoreDamaged(f"The database {path} is damaged ({found}). Nothing was changed. {remedy}")


def _migrate(connection: SqliteDatabase) -> None:
    """Apply missing migrations, each in a transaction of its own."""
    migrations = load_migrations()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection)
        applied = count_applied(version)
        if applied >= len(migrations):
            connection.execute("ROLLBACK")
            return
        try:
            connection.execute(migrations[applied])
            connection.execute(f"PRAGMA user_version = {BASELINE_VERSION + applied}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(apsw.Error):  # SQLite may already have rolled back; report the first error
                connection.execute("ROLLBACK")
            raise
