"""Wiring of a PostgreSQL database, which any number of processes can open."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from treadle.bootstrap.stores import MonitoredDispatcher, Stores, WorkerShare
from treadle.dispatch.own_runs import OwnRunsDispatcher
from treadle.dispatch.pgqueuer import PgQueuerDispatcher
from treadle.domain.ids import Instant, RunId
from treadle.engine.cluster_sync import ClusterSync
from treadle.engine.event_hub import EventHub
from treadle.ports.channel_store import ChannelState
from treadle.ports.clock import Clock
from treadle.ports.deletion import DatabaseFacts
from treadle.ports.journal import Wakes
from treadle.stores.postgres.access import PostgresRequests, PostgresTokens
from treadle.stores.postgres.accounts import PostgresAccounts
from treadle.stores.postgres.approvals import PostgresApprovals
from treadle.stores.postgres.automation import PostgresHooks, PostgresSchedules, PostgresWebhooks
from treadle.stores.postgres.channels import PostgresChannels
from treadle.stores.postgres.connection import connect
from treadle.stores.postgres.database import PostgresDatabase, open_database, open_without_migrating
from treadle.stores.postgres.database_facts import (
    count_guard_events,
    has_schema,
    name_vector_engine,
    read_facts,
    require_schema_right,
)
from treadle.stores.postgres.deletion import PostgresDeletions
from treadle.stores.postgres.journal import PostgresJournal
from treadle.stores.postgres.leader_lock import LeaderLock
from treadle.stores.postgres.memory import PostgresMemories
from treadle.stores.postgres.notifications import PostgresNotifications
from treadle.stores.postgres.overview import PostgresOverview
from treadle.stores.postgres.results import PostgresResults
from treadle.stores.postgres.schema import current_version, refuse_version
from treadle.stores.postgres.sessions import PostgresSessions
from treadle.stores.postgres.sign_ins import PostgresSignIns
from treadle.stores.postgres.writer import PostgresWriter
from treadle.system.clock import SteadyClock

if TYPE_CHECKING:
    from treadle.ports.agent_versions import SharedDefinitions
    from treadle.ports.evaluations import Evaluations


async def open_postgres(url: str, hub: EventHub, clock: Clock) -> Stores:
    """Open a database for an engine. Events are exchanged with other processes."""
    async with AsyncExitStack() as opened:
        database = await open_database(url)
        opened.push_async_callback(database.close)
        if isinstance(clock, SteadyClock):
            clock.align(await database.now())  # timers of one process are handled by others
        writer = PostgresWriter(database, hub.on_lost)
        journal = PostgresJournal(database, writer, hub, clock)
        opened.push_async_callback(journal.close)
        others = ClusterSync(hub, journal, PostgresNotifications(database, writer.name))
        opened.push_async_callback(others.close)
        await others.start()
        return _make_stores(database, journal, clock, opened.pop_all().aclose)


@asynccontextmanager
async def connect_postgres(url: str, hub: EventHub, clock: Clock) -> AsyncGenerator[Stores, None]:
    """Open a database for a short command."""
    database = await open_database(url)
    journal = PostgresJournal(database, PostgresWriter(database, hub.on_lost), hub, clock)
    try:
        yield _make_stores(database, journal, clock, journal.close)
    finally:
        await journal.close()


async def read_postgres_facts(
    url: str, lately: int
) -> tuple[DatabaseFacts | None, int, Sequence[tuple[str, int]], str]:
    """Return facts about a database without migrating it.

    Raise StoreError at once, without waiting for the server to come up, or UsageError for an invalid URL."""
    known = current_version()
    await (await connect(url)).close()
    database = await open_without_migrating(url)
    try:
        if not await has_schema(database):
            await require_schema_right(database)
            return None, known, (), ""
        facts = await read_facts(database)
        refuse_version(url, facts.version)
        return (
            facts,
            known,
            await count_guard_events(database, lately),
            await name_vector_engine(database),
        )
    finally:
        await database.close()


async def read_postgres_channel_states(url: str) -> Sequence[ChannelState]:
    """Return what servers recorded about their channels, without migrating the database. It is nothing if the
    database has another schema version. Raise StoreError as `read_postgres_facts` does."""
    await (await connect(url)).close()
    database = await open_without_migrating(url)
    try:
        if not await has_schema(database) or (await read_facts(database)).version != current_version():
            return ()
        return await PostgresChannels(database).states()
    finally:
        await database.close()


def _make_stores(
    database: PostgresDatabase, journal: PostgresJournal, clock: Clock, close: Callable[[], Awaitable[None]]
) -> Stores:
    webhooks = PostgresWebhooks(database)
    return Stores(
        journal=journal,
        runs=journal,
        wakes=journal,
        approvals=PostgresApprovals(database),
        results=PostgresResults(database),
        sessions=PostgresSessions(database),
        overview=PostgresOverview(database),
        books=PostgresAccounts(database),
        memories=PostgresMemories(database),
        tokens=PostgresTokens(database),
        sign_ins=PostgresSignIns(database),
        requests=PostgresRequests(database),
        deletions=PostgresDeletions(database, clock),
        schedules=PostgresSchedules(database),
        hooks=PostgresHooks(database),
        webhooks=webhooks,
        letters=webhooks,
        channels=PostgresChannels(database),
        evaluations=partial(_make_evaluations, database),
        definitions=partial(_make_definitions, database),
        dispatcher=partial(_make_dispatcher, database, journal),
        close=close,
        alone=LeaderLock(database).take,
        provide_deps=journal.provide_deps,
        verify_writable=partial(_verify_writable, database),
        shared=True,
    )


def _make_evaluations(database: PostgresDatabase) -> "Evaluations":
    from treadle.stores.postgres.evaluations import PostgresEvaluations  # few commands use it

    return PostgresEvaluations(database)


def _make_definitions(database: PostgresDatabase) -> "SharedDefinitions":
    from treadle.stores.postgres.agent_versions import PostgresAgentVersions  # few commands use it

    return PostgresAgentVersions(database)


async def _verify_writable(database: PostgresDatabase) -> None:
    await database.rows("verify_writable")


# ── Dispatchers ──


class NoDispatcher:
    """Implements `ports.dispatcher.Dispatcher` for a process that leaves all work to others."""

    busy = False

    async def start(self, work: object) -> None:
        """Do nothing."""

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Do nothing: workers find the run themselves."""

    async def stop(self, grace: float = 0.0) -> None:
        """Do nothing."""


def _make_dispatcher(
    database: PostgresDatabase, wakes: Wakes, clock: Clock, worker: str, share: WorkerShare
) -> MonitoredDispatcher:
    if share.most == 0:
        return NoDispatcher()
    if share.only_own:
        return OwnRunsDispatcher(wakes, clock, worker, share.most)
    return PgQueuerDispatcher(database.connect, wakes, clock, worker, share.most)
