"""The queue of PgQueuer, created by its own installer. It contains nothing that is not also in `runs`, so it is
never migrated: for another version of PgQueuer it is recreated, and the sweep finds what it contained."""

from treadle.ports.queue import NAMES, queue_version
from treadle.stores.postgres.driver import PostgresConnection

TABLE = f"{NAMES['db_schema']}.{NAMES['queue_table']}"


async def has_queue(connection: PostgresConnection) -> bool:
    """Return whether the queue exists for the installed version of PgQueuer."""
    found = await connection.fetchval("SELECT obj_description(to_regclass($1), 'pg_class')", TABLE)
    return found == queue_version()


async def create_queue(connection: PostgresConnection) -> None:
    """Recreate the queue in the current transaction."""
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment  # imported here because it is slow
    from pgqueuer.domain.settings import DBSettings

    environment = QueryBuilderEnvironment(DBSettings.model_validate(NAMES))
    await connection.execute(environment.build_uninstall_query())
    await connection.execute(environment.build_install_query(create_schema=False))
    await connection.execute(f"COMMENT ON TABLE {TABLE} IS '{queue_version()}'")
