"""The queue of PgQueuer, as its own installer makes it. It holds nothing that is not in `runs` as well, so it is
never brought up to date: for another version of PgQueuer it is made anew, and the sweep finds what was in it."""

from treadle.ports.queue import NAMES, edition
from treadle.stores.postgres.driver import PostgresConnection

TABLE = f"{NAMES['db_schema']}.{NAMES['queue_table']}"


async def has_queue(connection: PostgresConnection) -> bool:
    """Whether there is one, for the version of PgQueuer that is installed here."""
    found = await connection.fetchval("SELECT obj_description(to_regclass($1), 'pg_class')", TABLE)
    return found == edition()


async def create_queue(connection: PostgresConnection) -> None:
    """Make it anew, in the transaction under way."""
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment  # only here: it takes its time
    from pgqueuer.domain.settings import DBSettings

    environment = QueryBuilderEnvironment(DBSettings.model_validate(NAMES))
    await connection.execute(environment.build_uninstall_query())
    await connection.execute(environment.build_install_query(create_schema=False))
    await connection.execute(f"COMMENT ON TABLE {TABLE} IS '{edition()}'")
