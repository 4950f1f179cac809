"""Migrate a database from SQLite to PostgreSQL.

Rows are copied in batches, each with a progress record, so a migration that was killed resumes where it stopped.
Everything is written to a staging schema. Once all rows are copied and verified, the staging schema is renamed to
the schema that Treadle uses. Until then the target is unchanged."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from treadle.domain.errors import StoreDamaged, StoreError, StoreOwned, UsageError
from treadle.stores.migrate.tables import TABLES, MigratedTable, Row, TableChecksum
from treadle.stores.postgres.connection import DRIVER_ERRORS, SCHEMA, connect, escape_nul_json, explain, redact_url
from treadle.stores.postgres.driver import PostgresConnection
from treadle.stores.postgres.memory_rows import build_memory_record
from treadle.stores.postgres.schema import current_version, migrate
from treadle.stores.sqlite.connection import SqliteDatabase, open_database
from treadle.stores.sqlite.connection import explain as explain_sqlite
from treadle.stores.sqlite.lock import DatabaseLock

STAGING_SCHEMA = "treadle_moving"
"""The schema that a migration writes to."""
LOCK_ID = 0x4D4F5645
"""Advisory lock that a migration holds on the target."""
MAX_LOCK_ATTEMPTS = 10
"""The server may need a moment to notice that the previous holder was killed."""
MAX_BATCH_ROWS, MAX_BATCH_BYTES = 1000, 4 * 2**20
"""Limits of one batch. A single row may be larger."""
CREATE_PROGRESS_TABLE = f"""
CREATE TABLE IF NOT EXISTS {STAGING_SCHEMA}.moving (
    name TEXT PRIMARY KEY,
    last TEXT NOT NULL,
    rows BIGINT NOT NULL
)
"""
"""For each table the key of its last copied row, and the number of copied rows. The row with an empty name
identifies the source."""
INSERT_MEMORIES = """
INSERT INTO memories (id, memory_id, agent_id, kind, text, words, lexemes, digest, created_at, source, used_at,
                      uses, pinned, session_id, run_id, owner)
OVERRIDING SYSTEM VALUE
SELECT (memory->>'id')::BIGINT, memory->>'memory_id', memory->>'agent_id', memory->>'kind', memory->>'text',
       memory->>'words',
       marked_words(memory->'lexemes', memory->>'agent_id', memory->>'owner'),
       decode(memory->>'digest', 'hex'), (memory->>'created_at')::FLOAT8,
       memory->>'source', (memory->>'used_at')::FLOAT8,
       (memory->>'uses')::INTEGER, (memory->>'pinned')::BOOLEAN, memory->>'session_id', memory->>'run_id',
       memory->>'owner'
FROM jsonb_array_elements($1) AS memory
"""

Progress = Callable[[str, int, int], None]
"""Called with a table name, the number of copied rows and the total."""


class RowCounts(Struct, frozen=True):
    """Number of rows per table, equal on both sides."""

    tables: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.tables)


async def migrate_database(path: str, url: str, progress: Progress = lambda table, done, total: None) -> RowCounts:
    """Copy a SQLite file to an empty PostgreSQL database, or resume an interrupted migration. The file is not
    changed. Raise StoreOwned while another process owns the file, UsageError if the target is not empty, and
    StoreDamaged if the copied rows differ from the source."""
    lock = _lock_source(path)
    try:
        with closing(open_database(path)) as source:
            return await _Migration(source, path, url, progress).run()
    except apsw.Error as error:
        raise explain_sqlite(error, path) from error
    except DRIVER_ERRORS as error:
        raise StoreError(f"{explain(error, url)} Run the same command again to resume.") from error
    finally:
        lock.release()


def _lock_source(path: str) -> DatabaseLock:
    if not Path(path).is_file():
        raise UsageError(f"There is no database at {path}. Nothing was migrated.")
    try:
        return DatabaseLock(path)
    except StoreOwned as error:
        raise StoreOwned(
            f"Nothing was migrated. {error}", error.socket, error.owner, error.since, error.pid
        ) from None


class _Migration:
    def __init__(self, source: SqliteDatabase, path: str, url: str, progress: Progress) -> None:
        self._source = source
        self._path = path
        self._url = url
        self._progress = progress

    async def run(self) -> RowCounts:
        async with _exclusive_connection(self._url) as target:
            await self._begin(target)
            for table in TABLES:
                await self._copy(target, table)
            counts = [(table.name, await self._verify(target, table)) for table in TABLES]
            await self._finish(target)
            return RowCounts(tuple(counts))

    # ── Preparation ──

    async def _begin(self, target: PostgresConnection) -> None:
        await _refuse_occupied(target, self._url)
        what = self._identify_source()
        found = None
        if await target.fetchval("SELECT to_regclass($1)", f"{STAGING_SCHEMA}.moving") is not None:
            found = await target.fetchval(f"SELECT last FROM {STAGING_SCHEMA}.moving WHERE name = ''")  # noqa: S608 -- constant name
        if found is None:
            await target.execute(f"DROP SCHEMA IF EXISTS {STAGING_SCHEMA} CASCADE")
            await migrate(self._url, STAGING_SCHEMA)
            await target.execute(CREATE_PROGRESS_TABLE)
            await target.execute(f"INSERT INTO {STAGING_SCHEMA}.moving VALUES ('', $1, 0)", what)  # noqa: S608 -- constant name
        elif found != what:
            raise UsageError(
                f"{redact_url(self._url)} contains an interrupted migration of {msgspec.json.decode(found)[0]}, "
                "which is another database or has changed since. Nothing was migrated. To start over, run: "
                f"DROP SCHEMA {STAGING_SCHEMA} CASCADE"
            )

    def _identify_source(self) -> str:
        """Return what identifies the source: its path, the state of its data, and the schema of the copy."""
        latest = (
            "SELECT max(position), (SELECT count(*) FROM runs), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'memories') FROM events"
        )
        found = self._source.execute(latest).fetchone()
        return msgspec.json.encode([os.path.realpath(self._path), found, current_version()]).decode()

    # ── Copy ──

    async def _copy(self, target: PostgresConnection, table: MigratedTable) -> None:
        [(total,)] = self._source.execute(table.select_count).fetchall()
        found = await target.fetch(f"SELECT last, rows FROM {STAGING_SCHEMA}.moving WHERE name = $1", table.name)  # noqa: S608 -- constant name
        last, done = (msgspec.json.decode(found[0][0]), found[0][1]) if found else (None, 0)
        rows = (
            self._source.execute(table.select_rows())
            if last is None
            else self._source.execute(table.select_rows_after_key, last)
        )
        self._progress(table.name, done, total)
        for part in _split_batches(rows):
            done += len(part)
            last = msgspec.json.encode(part[-1][: len(table.key)]).decode()
            async with target.transaction():
                await _insert(target, table, part)
                await target.execute(
                    f"INSERT INTO {STAGING_SCHEMA}.moving VALUES ($1, $2, $3) "  # noqa: S608 -- constant name
                    "ON CONFLICT (name) DO UPDATE SET last = excluded.last, rows = excluded.rows",
                    table.name,
                    last,
                    done,
                )
            self._progress(table.name, done, total)

    # ── Verification ──

    async def _verify(self, target: PostgresConnection, table: MigratedTable) -> int:
        """Return the number of rows of a table. Raise StoreDamaged if the two databases differ."""
        there, here = TableChecksum(), TableChecksum()
        for row in self._source.execute(table.select_rows()):
            here.add(table.convert(row))
        async with target.transaction(isolation="repeatable_read", readonly=True):
            async for row in target.cursor(table.select_all, prefetch=MAX_BATCH_ROWS):
                there.add(tuple(row))
        if here != there:
            raise StoreDamaged(
                f"The copy of {table.name} differs from {self._path}: {there.rows} rows arrived of {here.rows}, or "
                f"their content differs. {redact_url(self._url)} still shows none of it. To start over, run: "
                f"DROP SCHEMA {STAGING_SCHEMA} CASCADE"
            )
        return here.rows

    # ── Publication ──

    async def _finish(self, target: PostgresConnection) -> None:
        """Make all copied rows visible at once."""
        async with target.transaction():
            for table in TABLES:
                if table.identity is not None:
                    last = self._find_last_number(table)
                    await target.execute(
                        "SELECT setval(pg_get_serial_sequence($1, $2), greatest($3::BIGINT, 1), $3::BIGINT > 0)",
                        f"{STAGING_SCHEMA}.{table.name}",
                        table.identity,
                        last,
                    )
            await target.execute(f"DROP TABLE {STAGING_SCHEMA}.moving")
            await _refuse_occupied(target, self._url)
            await target.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            await target.execute(f"ALTER SCHEMA {STAGING_SCHEMA} RENAME TO {SCHEMA}")
        for table in TABLES:
            await target.execute(f"ANALYZE {SCHEMA}.{table.name}")

    def _find_last_number(self, table: MigratedTable) -> int:
        """Return the highest number ever assigned."""
        numbers = [f"SELECT max({table.identity}) FROM {table.name}"]  # noqa: S608 -- constant names
        if table.name == "events":
            numbers.append("SELECT max(position) FROM deleted_sessions")
        if table.name == "memories":
            numbers.append("SELECT seq FROM sqlite_sequence WHERE name = 'memories'")
        found = [row[0] for number in numbers for row in self._source.execute(number)]
        return max((number for number in found if number is not None), default=0)


@asynccontextmanager
async def _exclusive_connection(url: str) -> AsyncGenerator[PostgresConnection, None]:
    """Yield a connection that holds the migration lock of the target."""
    connection = await connect(url, STAGING_SCHEMA)
    try:
        for _ in range(MAX_LOCK_ATTEMPTS):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_ID):
                break
            await asyncio.sleep(0.1)
        else:
            raise StoreError(f"Another migration to {redact_url(url)} is in progress. Nothing was migrated.")
        yield connection
    finally:
        await connection.close(timeout=5)


async def _refuse_occupied(target: PostgresConnection, url: str) -> None:
    """Raise UsageError if the target contains rows."""
    for name in ("writers", *(table.name for table in TABLES)):
        if await target.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.{name}") is None:
            continue
        if await target.fetchval(f"SELECT EXISTS (SELECT 1 FROM {SCHEMA}.{name})"):  # noqa: S608 -- constant names
            raise UsageError(
                f"{redact_url(url)} is not empty: {SCHEMA}.{name} contains rows. Nothing was changed. Name another "
                "database, or stop what uses this one and empty it."
            )


def _split_batches(rows: Any) -> Iterator[list[Row]]:
    part, size = list[Row](), 0
    for row in rows:
        part.append(row)
        size += sum([len(value) for value in row if isinstance(value, str | bytes)])
        if len(part) >= MAX_BATCH_ROWS or size >= MAX_BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


async def _insert(target: PostgresConnection, table: MigratedTable, rows: Sequence[Row]) -> None:
    if table.name == "memories":  # PostgreSQL indexes their words differently
        records = [_memory_record(dict(zip(table.columns, row[len(table.key) :], strict=True))) for row in rows]
        await target.execute(INSERT_MEMORIES, escape_nul_json(msgspec.json.encode(records)).decode())
        return
    records = [table.convert(row) for row in rows]
    await target.copy_records_to_table(
        table.name, records=records, columns=table.columns, schema_name=STAGING_SCHEMA
    )


def _memory_record(row: dict[str, Any]) -> dict[str, Any]:
    return {**build_memory_record(row["text"]), **row, "digest": row["digest"].hex(), "pinned": bool(row["pinned"])}
