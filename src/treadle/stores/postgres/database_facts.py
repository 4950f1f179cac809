"""What a PostgreSQL database holds, for whoever looks after it."""

from treadle.ports.deletion import DatabaseFacts
from treadle.stores.postgres.connection import explain_missing_rights
from treadle.stores.postgres.database import PostgresDatabase


async def has_schema(database: PostgresDatabase) -> bool:
    """Whether it has anything of ours."""
    found = await database.row("is_there")
    return found is not None and bool(found[0])


async def require_schema_right(database: PostgresDatabase) -> None:
    """Raise StoreError where there is nothing of ours, and our user may not change that."""
    found = await database.row("may_make_schema")
    if found is None or not found[0]:
        raise explain_missing_rights("it may make no schema", database.url)


async def read_facts(database: PostgresDatabase) -> DatabaseFacts:
    """What it holds now, whoever writes to it meanwhile."""
    found = await database.row("database_facts")
    assert found is not None, "counts are always there"
    return DatabaseFacts(*found)


async def count_guard_events(database: PostgresDatabase, among: int) -> list[tuple[str, int]]:
    """How often guards have done something, by type of event, among so many of the latest events."""
    return [(row[0], row[1]) for row in await database.rows("guards_fired", among)]


async def name_vector_engine(database: PostgresDatabase) -> str:
    """What compares the vectors of memories: pgvector, or plain SQL where the server does not have it."""
    found = await database.row("has_pgvector")
    return "pgvector" if found is not None and found[0] else "SQL"
