"""Opening a SQLite file: it is created, migrated, or refused with one line that says what to do."""

import asyncio
import gc
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stores.processes import HOLD_THE_WRITE_LOCK, KEEP_EVERYONE_OUT, holder
from tests.testing.harnesses import opened
from treadle.domain.errors import StoreDamaged, StoreError, StoreLocked, StoreNewer, StoreOutdated
from treadle.stores.baseline import LAST_COMMIT_BEFORE_BASELINE
from treadle.stores.sqlite import connection as opening
from treadle.stores.sqlite.connection import (
    BASELINE_VERSION,
    connect,
    current_version,
    load_migrations,
    open_database,
    open_read_only,
    open_reader,
)
from treadle.testing.conformance.store import OPENING, Recorder, StoreProcess
from treadle.testing.time import CountingIds, FakeClock

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "treadle.db")


def value(path: str, sql: str) -> object:
    database = open_reader(path)
    try:
        return database.execute(sql).fetchall()[0][0]
    finally:
        database.close()


def one_line(error: StoreError) -> str:
    text = str(error)
    assert "\n" not in text
    return text


async def fill(path: str, runs: int = 200) -> list[str]:
    """Write some runs the way an engine does."""
    recorder, clock = Recorder(), FakeClock()
    async with opened(path, recorder, clock) as journal:
        process = StoreProcess(journal, recorder, clock, CountingIds(), "worker")
        return [await process.submit() for _ in range(runs)]


# ── Migrations ─────────────────────────────────────────────────────────────────────────────────────


def test_a_new_file_has_the_current_format(path: str) -> None:
    open_database(path).close()
    assert value(path, "PRAGMA user_version") == current_version()
    assert value(path, "PRAGMA journal_mode") == "wal"
    assert value(path, "SELECT count(*) FROM runs") == 0


async def test_opening_again_changes_nothing(path: str) -> None:
    await fill(path, 3)
    before = value(path, "SELECT group_concat(sql) FROM sqlite_schema")
    open_database(path).close()
    assert value(path, "SELECT group_concat(sql) FROM sqlite_schema") == before
    assert value(path, "SELECT count(*) FROM events") == 6


def test_an_empty_file_is_treated_as_new(path: str) -> None:
    Path(path).touch()
    open_database(path).close()
    assert value(path, "PRAGMA user_version") == current_version()


def test_writes_are_durable(path: str) -> None:
    database = open_database(path)
    assert database.execute("PRAGMA synchronous").fetchall() == [(2,)], "not FULL"
    assert database.execute("PRAGMA foreign_keys").fetchall() == [(1,)]
    database.close()


def test_a_failed_migration_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails in its middle leaves the version before, which the version before can use."""
    known, version = load_migrations(), current_version()
    monkeypatch.setattr(opening, "load_migrations", lambda: [*known, "CREATE TABLE half (x); SELECT nonsense;"])
    with pytest.raises(StoreError):
        open_database(path)
    assert value(path, "PRAGMA user_version") == version
    assert value(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == 0
    monkeypatch.setattr(opening, "load_migrations", lambda: [*known, "CREATE TABLE whole (x);"])
    open_database(path).close()
    assert value(path, "PRAGMA user_version") == version + 1
    assert value(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'whole'") == 1


async def test_a_later_migration_changes_a_database_of_the_baseline_and_keeps_its_rows(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path, 3)
    known, version = load_migrations(), current_version() + 1
    later = [*known, "ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'"]
    monkeypatch.setattr(opening, "load_migrations", lambda: later)
    with pytest.raises(StoreError, match="older schema"):
        open_read_only(path)
    open_database(path).close()
    assert value(path, "PRAGMA user_version") == version
    assert value(path, "SELECT group_concat(DISTINCT colour) || count(*) FROM runs") == "blue3"
    made = str(Path(path).with_name("made.db"))
    open_database(made).close()
    columns = "SELECT group_concat(name) FROM pragma_table_info('runs')"
    assert value(made, columns) == value(path, columns)
    monkeypatch.setattr(opening, "load_migrations", lambda: known)
    with pytest.raises(StoreNewer, match=f"schema version {version}; this one supports"):
        open_database(path)


# ── Not fit to be used ─────────────────────────────────────────────────────────────────────────────


async def test_a_newer_version_is_refused_and_left_alone(path: str) -> None:
    await fill(path, 1)
    database = connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreNewer) as raised:
        open_database(path)
    assert "schema version 99" in one_line(raised.value)
    assert path in str(raised.value)
    assert Path(path).read_bytes() == before


@pytest.mark.parametrize("version", [1, BASELINE_VERSION - 1])
@pytest.mark.parametrize("open_it", [open_database, open_read_only])
async def test_a_database_from_before_the_baseline_is_refused_and_left_alone(
    path: str, tmp_path: Path, version: int, open_it: Callable[[str], object]
) -> None:
    """This includes the write-ahead log of a process that was killed."""
    await fill(path, 1)
    database = connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    killed = str(tmp_path / "killed.db")
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, killed + suffix)
    database.close()
    for each in (path, killed):
        before = {file.name: file.read_bytes() for file in tmp_path.glob(f"{Path(each).name}*")}
        with pytest.raises(StoreOutdated) as raised:
            open_it(each)
        text = one_line(raised.value)
        assert f"The database {each} is from before the first release (schema version {version})" in text
        assert f"Check out commit {LAST_COMMIT_BEFORE_BASELINE} " in text
        assert "treadle memory export" in text
        gc.collect()
        assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_file_that_is_not_a_database_is_refused(path: str) -> None:
    content = random.Random(1).randbytes(50_000)
    Path(path).write_bytes(content)
    with pytest.raises(StoreDamaged) as raised:
        open_database(path)
    text = one_line(raised.value)
    assert path in text
    assert "no backup" in text
    assert ".recover" in text
    assert Path(path).read_bytes() == content


async def test_a_damaged_page_is_found_at_start(path: str) -> None:
    await fill(path)
    damage(path)
    with pytest.raises(StoreDamaged) as raised:
        open_database(path)
    assert "Nothing was changed" in one_line(raised.value)


async def test_the_newest_backup_is_named(path: str) -> None:
    await fill(path)
    old, new = Path(f"{path}.1.bak"), Path(f"{path}.2.bak")
    shutil.copy(path, new)
    shutil.copy(path, old)
    os.utime(old, (1, 1))
    damage(path)
    with pytest.raises(StoreDamaged) as raised:
        open_database(path)
    text = one_line(raised.value)
    assert str(new) in text
    assert str(old) not in text
    Path(path).unlink()
    shutil.copy(new, path)
    open_database(path).close()


def test_a_backup_is_found_next_to_a_database_with_brackets_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes[1].db"
    path.write_bytes(b"not a database" * 1000)
    backup = tmp_path / "notes[1].db.bak"
    backup.touch()
    with pytest.raises(StoreDamaged, match="newest backup"):
        open_database(str(path))


async def test_a_damaged_database_is_not_changed(tmp_path: Path) -> None:
    """This includes the write-ahead log of a process that died: recovering the data needs it."""
    path = str(tmp_path / "treadle.db")
    await fill(path)
    crashed = str(tmp_path / "crashed.db")

    recorder, clock, ids = Recorder(), FakeClock(), CountingIds()
    for _ in range(1000):
        ids("run")  # other ids than those in the file
    async with opened(path, recorder, clock) as journal:
        await StoreProcess(journal, recorder, clock, ids, "worker").submit(key="only in the log")
        for suffix in ("", "-wal"):
            shutil.copy(path + suffix, crashed + suffix)
    damage(crashed)
    before = Path(crashed).read_bytes(), Path(f"{crashed}-wal").read_bytes()
    with pytest.raises(StoreDamaged, match="Nothing was changed"):
        open_database(crashed)
    gc.collect()
    assert (Path(crashed).read_bytes(), Path(f"{crashed}-wal").read_bytes()) == before


def damage(path: str) -> None:
    """Overwrite a page in the middle."""
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        assert size > 8 * PAGE
        file.seek(size // 2 // PAGE * PAGE)
        file.write(b"\xa5" * PAGE)


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        open_database(str(tmp_path))


# ── Locked ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_locked_database_is_waited_for_then_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_TIMEOUT_MS", 50)
    with holder(KEEP_EVERYONE_OUT, path), pytest.raises(StoreLocked) as raised:
        open_database(path)
    text = one_line(raised.value)
    assert path in text
    assert "locked by another program" in text
    open_database(path).close()


async def test_opening_waits_for_a_lock_that_is_released_in_time(path: str) -> None:
    open_database(path).close()
    with holder(HOLD_THE_WRITE_LOCK, path) as process:

        async def wait() -> None:
            opened_then = asyncio.create_task(asyncio.to_thread(open_database, path))
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            (await opened_then).close()

        await wait()


async def test_acknowledged_data_survives_a_restart(path: str) -> None:
    runs = await fill(path, 5)

    recorder, clock = Recorder(), FakeClock()
    async with opened(path, recorder, clock) as journal:
        process = StoreProcess(journal, recorder, clock, CountingIds(), "worker")
        assert [record.origin.run_id for record in await journal.list_unfinished()] == runs
        assert [await process.types(record.origin.run_id) for record in await journal.find(limit=1)] == [OPENING]
