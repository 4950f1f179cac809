"""Copies of a SQLite database at one point in time, also while its owner writes; and checks of such copies."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar, cast

import apsw

from treadle.domain.errors import StoreDamaged, StoreError
from treadle.ports.deletion import DatabaseFacts
from treadle.stores.sqlite.connection import (
    APPLICATION_ID,
    SQL,
    SqliteDatabase,
    connect,
    count_applied,
    explain,
    load_migrations,
    open_reader,
    refuse_foreign,
    refuse_version,
)

Result = TypeVar("Result")
ALL_PAGES = -1


def copy_database(source: str, target: str) -> None:
    """Copy a database into a new file at one point in time. Writers are not blocked."""
    try:
        with closing(open_reader(source)) as reader, closing(connect(target)) as copy:
            reader.execute("BEGIN")  # all later reads see this snapshot
            reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
            with cast(Any, copy).backup("main", reader, "main") as backup:
                backup.step(ALL_PAGES)
            reader.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # leaves a single file
    except apsw.Error as error:
        raise explain(error, source) from error


def check_integrity(path: str) -> tuple[int, int]:
    """Check every page and index of a copy, and return its application id and schema version. Raise StoreDamaged if
    it is damaged."""

    def look(db: SqliteDatabase) -> tuple[int, int]:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise StoreDamaged(f"The copy {path} is damaged: {found[0] if found else 'the check failed'}")
        [(application, version)] = db.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
        return int(application), int(version)

    return _read(path, look)


def check_database(path: str) -> DatabaseFacts:
    """Return what a copy of a Treadle database contains. Raise StoreError unless it is one, this version can open
    it, and it has exactly the expected tables."""
    application, version = check_integrity(path)
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is not a Treadle database.")

    def look(db: SqliteDatabase) -> DatabaseFacts:
        refuse_version(db, "The database of the backup")
        if _list_objects(db) != _list_objects_after(load_migrations()[: count_applied(version)]):
            raise StoreDamaged(f"{path} does not have the tables of a Treadle database of its version.")
        [facts] = db.execute(SQL["database_facts"]).fetchall()
        return DatabaseFacts(*facts)

    return _read(path, look)


def read_facts(path: str) -> DatabaseFacts:
    """Return what a database contains. Another process may own it."""

    def look(db: SqliteDatabase) -> DatabaseFacts:
        _refuse_unusable(db, path)
        return DatabaseFacts(*db.execute(SQL["database_facts"]).fetchall()[0])

    return _read(path, look)


def require_own(path: str) -> None:
    """Raise StoreError if the file belongs to another program, or to a Treadle whose files this one cannot open."""
    _read(path, lambda db: _refuse_unusable(db, path))


def _refuse_unusable(db: SqliteDatabase, path: str) -> None:
    refuse_foreign(db, path)
    refuse_version(db, f"The database {path}")


def count_guard_events(path: str, among: int) -> list[tuple[str, int]]:
    """Return how often each guard acted, by event type, among the latest `among` events."""
    return _read(path, lambda db: [(row[0], row[1]) for row in db.execute(SQL["guards_fired"], (among,))])


def _read(path: str, look: Callable[[SqliteDatabase], Result]) -> Result:
    try:
        with closing(open_reader(path)) as reader:
            return look(reader)
    except apsw.Error as error:
        raise explain(error, path) from error


def _list_objects(db: SqliteDatabase) -> list[tuple[Any, ...]]:
    return db.execute(SQL["database_objects"]).fetchall()


def _list_objects_after(migrations: list[str]) -> list[tuple[Any, ...]]:
    """Return the tables, indexes and other objects of a database after these migrations."""
    with closing(connect(":memory:")) as fresh:
        for migration in migrations:
            fresh.execute(migration)
        return _list_objects(fresh)
