"""Opens the store for the conformance checks and for its own tests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from treadle.ports.clock import Clock
from treadle.ports.journal import Publisher
from treadle.stores.postgres.access import PostgresRequests, PostgresTokens
from treadle.stores.postgres.accounts import PostgresAccounts
from treadle.stores.postgres.automation import PostgresHooks, PostgresSchedules, PostgresWebhooks
from treadle.stores.postgres.database import PostgresDatabase, open_database
from treadle.stores.postgres.deletion import PostgresDeletions
from treadle.stores.postgres.journal import PostgresJournal
from treadle.stores.postgres.memory import PostgresMemories
from treadle.stores.postgres.overview import PostgresOverview
from treadle.stores.postgres.sessions import PostgresSessions
from treadle.stores.postgres.sign_ins import PostgresSignIns
from treadle.stores.postgres.writer import PostgresWriter
from treadle.testing.conformance.store import Store
from treadle.testing.conformance.store_harness import FullStore


@asynccontextmanager
async def opened(
    url: str, publisher: Publisher, clock: Clock
) -> AsyncGenerator[tuple[PostgresJournal, PostgresDatabase, PostgresWriter], None]:
    """Yield the journal of one process, with this clock."""
    database = await open_database(url)
    writer = PostgresWriter(database, publisher.on_lost, clock.now)
    journal = PostgresJournal(database, writer, publisher, clock)
    try:
        yield journal, database, writer
    finally:
        await journal.close()


class OnServer:
    """PostgreSQL, with a pool and a writer for each process. Implements `StoreHarness`."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def open(self, publisher: Publisher, clock: Clock) -> AsyncGenerator[Store, None]:
        async with opened(self._url, publisher, clock) as (journal, _, _):
            yield journal


class KeptOnServer:
    """The same, with the other stores. Implements `FullStoreHarness`."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def open(self, publisher: Publisher, clock: Clock) -> AsyncGenerator[FullStore, None]:
        async with opened(self._url, publisher, clock) as (journal, database, _):
            yield FullStore(
                runs=journal,
                memories=PostgresMemories(database),
                tokens=PostgresTokens(database),
                sign_ins=PostgresSignIns(database),
                requests=PostgresRequests(database),
                schedules=PostgresSchedules(database),
                hooks=PostgresHooks(database),
                webhooks=PostgresWebhooks(database),
                deletions=PostgresDeletions(database, clock),
                sessions=PostgresSessions(database),
                accounts=PostgresAccounts(database, clock.now),
                overview=PostgresOverview(database),
            )
