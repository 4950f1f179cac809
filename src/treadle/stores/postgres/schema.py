"""Schema migrations of a PostgreSQL database, in one transaction and by one process at a time."""

from hashlib import blake2b
from importlib import resources

from treadle.stores.postgres.connection import (
    DRIVER_ERRORS,
    SCHEMA,
    connect,
    explain,
    explain_newer_schema,
    refuse_transaction_pooling,
)
from treadle.stores.postgres.driver import PostgresConnection
from treadle.stores.postgres.queue import create_queue, has_queue

MIGRATION_LOCK_ID = 0x5452444C
"""Advisory lock of the process that checks or migrates the schema."""
LOCK_TIMEOUT = "60s"
"""How long a process waits for another one that migrates."""


def load_migrations() -> list[str]:
    """Return the migrations in order. The schema version of a database is the number of migrations applied."""
    return _read_folder("migrations")


def load_functions() -> str:
    """Return all SQL functions as one text."""
    return "\n".join(_read_folder("functions"))


def _read_folder(folder: str) -> list[str]:
    found = resources.files("treadle.stores.postgres").joinpath(folder).iterdir()
    return [entry.read_text() for entry in sorted(found, key=lambda entry: entry.name)]


async def migrate(url: str, schema: str = SCHEMA) -> None:
    """Create the tables and functions, or update them. Raise StoreNewer if a later version wrote the database."""
    connection = await connect(url, schema)
    try:
        await refuse_transaction_pooling(connection, url)
        if not await _is_current(connection, url, schema):
            async with connection.transaction():
                await _migrate(connection, url, schema)
    except DRIVER_ERRORS as error:
        raise explain(error, url) from error
    finally:
        await connection.close()


async def _is_current(connection: PostgresConnection, url: str, schema: str) -> bool:
    """Return whether there is nothing to do, as is usual. Then no lock is needed."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.schema_versions") is None:
        return False
    found = await connection.fetch("SELECT version, functions FROM schema_versions ORDER BY version DESC LIMIT 1")
    known = len(load_migrations())
    version, functions = found[0] if found else (0, "")
    if version > known:
        raise explain_newer_schema(url, version, known)
    return (version, functions) == (known, _digest(load_functions())) and await _has_queue(connection, schema)


async def _migrate(connection: PostgresConnection, url: str, schema: str) -> None:
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SET LOCAL statement_timeout = 0")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK_ID)
    if (
        await connection.fetchval("SELECT to_regnamespace($1)", schema) is None
    ):  # creating it needs a privilege of its own
        await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.execute(
        f"CREATE TABLE IF NOT EXISTS {schema}.schema_versions "
        "(version INTEGER PRIMARY KEY, functions TEXT NOT NULL)"
    )
    if await _is_current(connection, url, schema):
        return
    migrations, functions = load_migrations(), load_functions()
    done = await connection.fetchval("SELECT coalesce(max(version), 0) FROM schema_versions")
    for migration in migrations[done:]:
        await connection.execute(migration)
    if not await _has_queue(connection, schema):
        await create_queue(connection)
    await connection.execute(f"SET LOCAL check_function_bodies = off;\n{functions}")
    await connection.execute(
        "INSERT INTO schema_versions (version, functions) VALUES ($1, $2) "
        "ON CONFLICT (version) DO UPDATE SET functions = excluded.functions",
        len(migrations),
        _digest(functions),
    )


async def _has_queue(connection: PostgresConnection, schema: str) -> bool:
    """Return whether the queue exists or is not needed: no process works in a staging schema."""
    return schema != SCHEMA or await has_queue(connection)


def _digest(functions: str) -> str:
    return blake2b(functions.encode(), digest_size=16).hexdigest()
