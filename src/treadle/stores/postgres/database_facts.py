"""Facts about a PostgreSQL database, for the operator."""

from treadle.ports.deletion import DatabaseFacts
from treadle.stores.postgres.connection import explain_missing_rights
from treadle.stores.postgres.database import PostgresDatabase


async def has_schema(database: PostgresDatabase) -> bool:
    """Return whether the database contains the tables of Treadle."""
    found = await database.row("is_there")
    return found is not None and bool(found[0])


async def require_schema_right(database: PostgresDatabase) -> None:
    """Raise StoreError if the user may not create the missing schema."""
    found = await database.row("may_make_schema")
    if found is None or not found[0]:
        raise explain_missing_rights("it may not create a schema", database.url)


async def read_facts(database: PostgresDatabase) -> DatabaseFacts:
    """Return counts of the stored data, also while others write."""
    found = await database.row("database_facts")
    assert found is not None, "counts always return a row"
    return DatabaseFacts(*found)


async def count_guard_events(database: PostgresDatabase, among: int) -> list[tuple[str, int]]:
    """Return how often each guard acted, by event type, among the latest `among` events."""
    return [(row[0], row[1]) for row in await database.rows("guards_fired", among)]


async def name_vector_engine(database: PostgresDatabase) -> str:
    """Return what compares vectors of memories: pgvector, or SQL if the server lacks it."""
    found = await database.row("has_pgvector")
    return "pgvector" if found is not None and found[0] else "SQL"
