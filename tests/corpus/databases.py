"""The golden corpus as databases: recording each store into a file, and making a database from that file."""

import gzip
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from tests.stores.corpus.make import tables_of
from treadle.stores.postgres import schema
from treadle.stores.postgres.driver import open_connection
from treadle.stores.sqlite.connection import connect

DATA = Path(__file__).parent / "data"
STORES = ("sqlite", "postgres")
QUEUE = "pgqueuer"
"""Tables of the queue start with this; the sweep wakes what they would have woken."""
WORKER = "somewhere:1:00000000"
"""The worker that held the runs in progress."""


def database_of(store: str) -> Path:
    return DATA / ("sqlite.sql.gz" if store == "sqlite" else "postgres.jsonl.gz")


def projection_of(store: str) -> Path:
    """Return the file with the state and the requests of every run."""
    return DATA / f"{store}-projected.jsonl.gz"


def save(path: Path, content: bytes) -> None:
    """Write a file of the corpus, compressed the same way every time."""
    path.write_bytes(gzip.compress(content, mtime=0))


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")


def dump_sqlite(path: str) -> Iterator[str]:
    """Yield a SQLite database as statements, while its owner is still at work."""
    database: Any = connect(path)
    database.execute("BEGIN IMMEDIATE")
    database.execute("UPDATE runs SET worker = ? WHERE worker IS NOT NULL", (WORKER,))
    yield from tables_of(database)
    database.execute("ROLLBACK")
    database.close()


def load_sqlite(path: Path, lines: Sequence[str] | None = None) -> str:
    """Make the database of the corpus again, or that of other lines; return its URL."""
    database = connect(str(path))
    database.execute("\n".join(lines or lines_of(database_of("sqlite"))))
    database.close()
    return f"sqlite:///{path}"


@asynccontextmanager
async def _connection(url: str) -> AsyncGenerator[Any, None]:
    connection = await open_connection(url, 30, {"search_path": "treadle"})
    try:
        yield connection
    finally:
        await connection.close()


TABLES = """
SELECT relname, (SELECT attname FROM pg_attribute WHERE attrelid = pg_class.oid AND attidentity <> '')
FROM pg_class WHERE relnamespace = 'treadle'::REGNAMESPACE AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY relname
"""


async def dump_postgres(url: str) -> list[str]:
    """Return a PostgreSQL database as lines: the version of its format, then a table and a row each."""
    async with _connection(url) as connection, connection.transaction():
        await connection.execute("UPDATE runs SET worker = $1 WHERE worker IS NOT NULL", WORKER)
        version = await connection.fetchval("SELECT max(version) FROM schema_versions")
        lines = [msgspec.json.encode({"version": version}).decode()]
        for table, _ in await connection.fetch(TABLES):
            if table == "schema_versions" or table.startswith(QUEUE):
                continue
            rows = await connection.fetch(f"SELECT to_json({table})::TEXT FROM {table}")  # noqa: S608 -- our tables
            lines += [f'{{"table":"{table}","row":{row[0]}}}' for row in rows]
        return lines


async def load_postgres(url: str, lines: Sequence[str] | None = None) -> None:
    """Fill an empty PostgreSQL database with the corpus, or with other lines, in the format of their version."""
    first, *rest = [msgspec.json.decode(line) for line in lines or lines_of(database_of("postgres"))]
    earlier = schema.load_migrations()[: first["version"] - schema.BASELINE_VERSION + 1]
    with patch.multiple(schema, load_migrations=lambda: earlier, load_functions=lambda: ""):
        await schema.migrate(url)
    rows: dict[str, list[Any]] = {}
    for line in rest:
        rows.setdefault(line["table"], []).append(line["row"])
    async with _connection(url) as connection, connection.transaction():
        await connection.execute("SET session_replication_role = replica")  # no order of tables to keep
        for table, identity in await connection.fetch(TABLES):
            filled = msgspec.json.encode(rows.get(table, [])).decode()
            await connection.execute(
                f"INSERT INTO {table} OVERRIDING SYSTEM VALUE "  # noqa: S608 -- our tables
                f"SELECT * FROM json_populate_recordset(NULL::{table}, $1)",
                filled,
            )
            if identity:
                await connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{identity}'), max({identity})) FROM {table}"  # noqa: S608
                )
