"""Moves a database from SQLite to PostgreSQL: in parts, each with a note of how far it has come, so that whoever is
killed goes on where it was; and checked before anybody can see it.

Everything is written to a schema of its own. When all of it is there, and is what SQLite has, that schema is given
the name that Treadle looks for. Until then the target is as empty as it was."""

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
from treadle.stores.postgres.schema import migrate
from treadle.stores.sqlite.connection import SqliteDatabase, open_database
from treadle.stores.sqlite.connection import explain as explain_sqlite
from treadle.stores.sqlite.lock import DatabaseLock

STAGING_SCHEMA = "treadle_moving"
"""The schema that a move writes to."""
LOCK_ID = 0x4D4F5645
"""Of whoever moves something there."""
MAX_LOCK_ATTEMPTS = 10
"""To get it: the server may take a moment to see that the one who had it was killed."""
MAX_BATCH_ROWS, MAX_BATCH_BYTES = 1000, 4 * 2**20
"""In one part. A single row may be larger."""
CREATE_PROGRESS_TABLE = f"""
CREATE TABLE IF NOT EXISTS {STAGING_SCHEMA}.moving (
    name TEXT PRIMARY KEY,
    last TEXT NOT NULL,
    rows BIGINT NOT NULL
)
"""
"""For each table the key of the last row that is there, and how many are. An empty name: what is moved."""
INSERT_MEMORIES = """
INSERT INTO memories (id, memory_id, agent_id, kind, text, words, lexemes, digest, created_at, source, used_at,
                      uses, pinned, session_id, run_id, owner)
OVERRIDING SYSTEM VALUE
SELECT (kept->>'id')::BIGINT, kept->>'memory_id', kept->>'agent_id', kept->>'kind', kept->>'text', kept->>'words',
       marked_words(kept->'lexemes', kept->>'agent_id', kept->>'owner'),
       decode(kept->>'digest', 'hex'), (kept->>'created_at')::FLOAT8, kept->>'source', (kept->>'used_at')::FLOAT8,
       (kept->>'uses')::INTEGER, (kept->>'pinned')::BOOLEAN, kept->>'session_id', kept->>'run_id',
       kept->>'owner'
FROM jsonb_array_elements($1) AS kept
"""

Progress = Callable[[str, int, int], None]
"""Told of a table, how many of its rows are there, and how many there are."""


class RowCounts(Struct, frozen=True):
    """How many rows each table has, on both sides."""

    tables: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.tables)


async def migrate_database(path: str, url: str, progress: Progress = lambda table, done, total: None) -> RowCounts:
    """Move all that is in a SQLite file to an empty PostgreSQL database, or go on with a move that was broken off.
    The file stays as it is. Raises StoreOwned while another process owns it, UsageError for a target that is not
    empty, StoreDamaged where what has arrived is not what was there."""
    lock = _lock_source(path)
    try:
        with closing(open_database(path)) as source:
            return await _Migration(source, path, url, progress).run()
    except apsw.Error as error:
        raise explain_sqlite(error, path) from error
    except DRIVER_ERRORS as error:
        raise StoreError(f"{explain(error, url)} The same command goes on where it has stopped.") from error
    finally:
        lock.release()


def _lock_source(path: str) -> DatabaseLock:
    if not Path(path).is_file():
        raise UsageError(f"There is no database at {path}. Nothing was moved.")
    try:
        return DatabaseLock(path)
    except StoreOwned as error:
        raise StoreOwned(f"Nothing was moved. {error}", error.socket) from None


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

    # ── Before ──

    async def _begin(self, target: PostgresConnection) -> None:
        await _refuse_occupied(target, self._url)
        what = self._identify_source()
        found = None
        if await target.fetchval("SELECT to_regclass($1)", f"{STAGING_SCHEMA}.moving") is not None:
            found = await target.fetchval(f"SELECT last FROM {STAGING_SCHEMA}.moving WHERE name = ''")  # noqa: S608 -- our own name
        if found is None:
            await target.execute(f"DROP SCHEMA IF EXISTS {STAGING_SCHEMA} CASCADE")
            await migrate(self._url, STAGING_SCHEMA)
            await target.execute(CREATE_PROGRESS_TABLE)
            await target.execute(f"INSERT INTO {STAGING_SCHEMA}.moving VALUES ('', $1, 0)", what)  # noqa: S608 -- our own name
        elif found != what:
            raise UsageError(
                f"{redact_url(self._url)} has a move in it that was broken off, of {msgspec.json.decode(found)[0]}; and "
                "that is another database than this one, or was used since. Nothing was moved. Begin anew after: "
                f"DROP SCHEMA {STAGING_SCHEMA} CASCADE"
            )

    def _identify_source(self) -> str:
        """What is moved: which file, and what it has come to."""
        latest = (
            "SELECT max(position), (SELECT count(*) FROM runs), "
            "(SELECT seq FROM sqlite_sequence WHERE name = 'memories') FROM events"
        )
        found = self._source.execute(latest).fetchone()
        return msgspec.json.encode([os.path.realpath(self._path), found]).decode()

    # ── Copying ──

    async def _copy(self, target: PostgresConnection, table: MigratedTable) -> None:
        [(total,)] = self._source.execute(table.select_count).fetchall()
        found = await target.fetch(f"SELECT last, rows FROM {STAGING_SCHEMA}.moving WHERE name = $1", table.name)  # noqa: S608 -- our own name
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
                    f"INSERT INTO {STAGING_SCHEMA}.moving VALUES ($1, $2, $3) "  # noqa: S608 -- our own name
                    "ON CONFLICT (name) DO UPDATE SET last = excluded.last, rows = excluded.rows",
                    table.name,
                    last,
                    done,
                )
            self._progress(table.name, done, total)

    # ── Checking ──

    async def _verify(self, target: PostgresConnection, table: MigratedTable) -> int:
        """How many rows both have, which are the same."""
        there, here = TableChecksum(), TableChecksum()
        for row in self._source.execute(table.select_rows()):
            here.add(table.convert(row))
        async with target.transaction(isolation="repeatable_read", readonly=True):
            async for row in target.cursor(table.select_all, prefetch=MAX_BATCH_ROWS):
                there.add(tuple(row))
        if here != there:
            raise StoreDamaged(
                f"What has arrived of {table.name} is not what {self._path} has: {there.rows} rows of {here.rows}, "
                f"or others. None of it can be seen in {redact_url(self._url)}. Begin anew after: "
                f"DROP SCHEMA {STAGING_SCHEMA} CASCADE"
            )
        return here.rows

    # ── After ──

    async def _finish(self, target: PostgresConnection) -> None:
        """Let it be seen, all at once."""
        async with target.transaction():
            for table in TABLES:
                if table.identity is not None:
                    last = self._find_last_number(table)
                    await target.execute(
                        "SELECT setval(pg_get_serial_sequence($1, $2), greatest($3::BIGINT, 1), $3::BIGINT > 0)",
                        f"{STAGING_SCHEMA}.{table.name}", table.identity, last,
                    )  # fmt: skip
            await target.execute(f"DROP TABLE {STAGING_SCHEMA}.moving")
            await _refuse_occupied(target, self._url)
            await target.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            await target.execute(f"ALTER SCHEMA {STAGING_SCHEMA} RENAME TO {SCHEMA}")
        for table in TABLES:
            await target.execute(f"ANALYZE {SCHEMA}.{table.name}")

    def _find_last_number(self, table: MigratedTable) -> int:
        """The highest number that was ever given."""
        numbers = [f"SELECT max({table.identity}) FROM {table.name}"]  # noqa: S608 -- our own names
        if table.name == "events":
            numbers.append("SELECT max(position) FROM deleted_sessions")
        if table.name == "memories":
            numbers.append("SELECT seq FROM sqlite_sequence WHERE name = 'memories'")
        found = [row[0] for number in numbers for row in self._source.execute(number)]
        return max((number for number in found if number is not None), default=0)


@asynccontextmanager
async def _exclusive_connection(url: str) -> AsyncGenerator[PostgresConnection, None]:
    """A connection of the only one that moves something there."""
    connection = await connect(url, STAGING_SCHEMA)
    try:
        for _ in range(MAX_LOCK_ATTEMPTS):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_ID):
                break
            await asyncio.sleep(0.1)
        else:
            raise StoreError(f"Somebody else is moving a database to {redact_url(url)} now. Nothing was moved.")
        yield connection
    finally:
        await connection.close(timeout=5)


async def _refuse_occupied(target: PostgresConnection, url: str) -> None:
    """A target that somebody has used, or uses, is left alone."""
    for name in ("writers", *(table.name for table in TABLES)):
        if await target.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.{name}") is None:
            continue
        if await target.fetchval(f"SELECT EXISTS (SELECT 1 FROM {SCHEMA}.{name})"):  # noqa: S608 -- our own names
            raise UsageError(
                f"{redact_url(url)} is not empty: there is something in {SCHEMA}.{name}. Nothing was changed. Name "
                "another database, or close what uses this one and make it empty."
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
    if table.name == "memories":  # whose words are kept in another way
        kept = [_memory_record(dict(zip(table.columns, row[len(table.key) :], strict=True))) for row in rows]
        await target.execute(INSERT_MEMORIES, escape_nul_json(msgspec.json.encode(kept)).decode())
        return
    records = [table.convert(row) for row in rows]
    await target.copy_records_to_table(
        table.name, records=records, columns=table.columns, schema_name=STAGING_SCHEMA
    )


def _memory_record(row: dict[str, Any]) -> dict[str, Any]:
    return {**build_memory_record(row["text"]), **row, "digest": row["digest"].hex(), "pinned": bool(row["pinned"])}
