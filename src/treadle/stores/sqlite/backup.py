"""A copy of a SQLite database as it is at one moment, also while its owner writes; and whether a copy is whole."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar, cast

import apsw

from treadle.domain.errors import StoreDamaged, StoreError, StoreNewer
from treadle.ports.deletion import DatabaseFacts
from treadle.stores.sqlite.connection import (
    APPLICATION_ID,
    SQL,
    SqliteDatabase,
    connect,
    explain,
    load_migrations,
    open_reader,
)

Result = TypeVar("Result")
ALL_PAGES = -1


def copy_database(source: str, target: str) -> None:
    """Copy a database into a new file, as it is at one moment. Whoever writes to it meanwhile is not held up."""
    try:
        with closing(open_reader(source)) as reader, closing(connect(target)) as copy:
            reader.execute("BEGIN")  # what is read from here on is of one moment
            reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
            with cast(Any, copy).backup("main", reader, "main") as backup:
                backup.step(ALL_PAGES)
            reader.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # all of it is in the one file
    except apsw.Error as error:
        raise explain(error, source) from error


def check_integrity(path: str) -> tuple[int, int]:
    """Look at every page and index of a copy; whose it is (its application id) and its version. Raises
    StoreDamaged where it is not a sound database."""

    def look(db: SqliteDatabase) -> tuple[int, int]:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise StoreDamaged(f"The copy {path} is damaged: {found[0] if found else 'it cannot be checked'}")
        [(application, version)] = db.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
        return int(application), int(version)

    return _read(path, look)


def check_database(path: str) -> DatabaseFacts:
    """The same for a copy of our own database: one that this version can open, with our tables and nothing else in
    it. What it holds."""
    application, version = check_integrity(path)
    migrations = load_migrations()
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is no database of Treadle.")
    if version > len(migrations):
        raise StoreNewer(
            f"The database was written by a newer Treadle (format {version}; this one knows {len(migrations)}). "
            "Install that version, then try again."
        )

    def look(db: SqliteDatabase) -> DatabaseFacts:
        if _list_objects(db) != _list_objects_after(migrations[:version]):
            raise StoreDamaged(f"{path} has other tables than a database of Treadle of its version has.")
        [facts] = db.execute(SQL["database_facts"]).fetchall()
        return DatabaseFacts(*facts)

    return _read(path, look)


def read_facts(path: str) -> DatabaseFacts:
    """What a database holds now, which another process may own."""
    return _read(path, lambda db: DatabaseFacts(*db.execute(SQL["database_facts"]).fetchall()[0]))


def count_guard_events(path: str, among: int) -> list[tuple[str, int]]:
    """How often guards have done something, by type of event, among so many of the latest events."""
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
    """The tables, indexes and whatever else a database has after these."""
    with closing(connect(":memory:")) as fresh:
        for migration in migrations:
            fresh.execute(migration)
        return _list_objects(fresh)
