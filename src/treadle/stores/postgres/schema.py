"""Schema migrations of a PostgreSQL database, in one transaction and by one process at a time."""

from hashlib import blake2b
from importlib import resources

from treadle.stores import baseline
from treadle.stores.postgres.connection import (
    DRIVER_ERRORS,
    SCHEMA,
    connect,
    explain,
    redact_url,
    refuse_transaction_pooling,
)
from treadle.stores.postgres.driver import PostgresConnection
from treadle.stores.postgres.queue import create_queue, has_queue

BASELINE_VERSION = 14
"""The schema version that the first migration makes. No release has used a lower one."""
MIGRATION_LOCK_ID = 0x5452444C
"""Advisory lock of the process that checks or migrates the schema."""
LOCK_TIMEOUT = "60s"
"""How long a process waits for another one that migrates."""


def load_migrations() -> list[str]:
    """Return the migrations in order. The first one makes the baseline."""
    return _read_folder("migrations")


def current_version() -> int:
    """Return the schema version of this code."""
    return BASELINE_VERSION + len(load_migrations()) - 1


def load_functions() -> str:
    """Return all SQL functions as one text."""
    return "\n".join(_read_folder("functions"))


def _read_folder(folder: str) -> list[str]:
    found = resources.files("treadle.stores.postgres").joinpath(folder).iterdir()
    return [entry.read_text() for entry in sorted(found, key=lambda entry: entry.name)]


def refuse_version(url: str, found: int) -> None:
    """Raise StoreNewer or StoreOutdated if this code cannot open a schema version."""
    baseline.refuse_version(f"The database {redact_url(url)}", found, BASELINE_VERSION, current_version())


async def migrate(url: str, schema: str = SCHEMA) -> None:
    """Create the tables and functions, or update them. Raise StoreNewer if a later version wrote the database,
    and StoreOutdated if it is from before the baseline."""
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
    version, functions = found[0] if found else (0, "")
    refuse_version(url, version)
    return (version, functions) == (current_version(), _digest(load_functions())) and await _has_queue(
        connection, schema
    )


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
    functions = load_functions()
    version = await connection.fetchval(
        "SELECT coalesce(max(version), $1) FROM schema_versions", BASELINE_VERSION - 1
    )
    for migration in load_migrations()[version - BASELINE_VERSION + 1 :]:
        await connection.execute(migration)
    if not await _has_queue(connection, schema):
        await create_queue(connection)
    await connection.execute(f"SET LOCAL check_function_bodies = off;\n{functions}")
    await connection.execute(
        "INSERT INTO schema_versions (version, functions) VALUES ($1, $2) "
        "ON CONFLICT (version) DO UPDATE SET functions = excluded.functions",
        current_version(),
        _digest(functions),
    )


async def _has_queue(connection: PostgresConnection, schema: str) -> bool:
    """Return whether the queue exists or is not needed: no process works in a staging schema."""
    return schema != SCHEMA or await has_queue(connection)


def _digest(functions: str) -> str:
    return blake2b(functions.encode(), digest_size=16).hexdigest()
