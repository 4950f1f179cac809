"""Wiring of a SQLite database: for an engine, for reading, or for changes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.bootstrap.stores import MonitoredDispatcher, Stores, WorkerShare
from treadle.config.database_marker import record_database, refuse_missing_database
from treadle.config.database_url import check_has_files, check_persistent, sqlite_path
from treadle.config.home import Home
from treadle.dispatch.local import LocalDispatcher
from treadle.dispatch.own_runs import OwnRunsDispatcher
from treadle.domain.errors import StoreFull, StoreOwned
from treadle.engine.event_hub import EventHub
from treadle.ports.clock import Clock
from treadle.ports.journal import Wakes
from treadle.stores.sqlite.access import SqliteRequests, SqliteTokens
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.approvals import SqliteApprovals
from treadle.stores.sqlite.automation import SqliteHooks, SqliteSchedules, SqliteWebhooks
from treadle.stores.sqlite.channels import SqliteChannels
from treadle.stores.sqlite.connection import SqliteDatabase, open_database, open_read_only, open_reader
from treadle.stores.sqlite.deletion import SqliteDeletions
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.overview import SqliteOverview
from treadle.stores.sqlite.results import SqliteResults
from treadle.stores.sqlite.sessions import SqliteSessions
from treadle.stores.sqlite.sign_ins import SqliteSignIns
from treadle.stores.sqlite.writer import InlineWriter, SqliteWriter, ThreadWriter, verify_writable

if TYPE_CHECKING:
    from treadle.ports.agent_versions import SharedDefinitions
    from treadle.ports.evaluations import Evaluations

IN_MEMORY = ":memory:"


async def open_sqlite(database: str, hub: EventHub, clock: Clock) -> Stores:
    """Open a database as its only owner."""
    path = sqlite_path(database)
    async with AsyncExitStack() as opened:
        lock = None if path == IN_MEMORY else DatabaseLock(path)
        if lock is not None:
            opened.callback(lock.release)
        writer = _make_writer(path, hub)
        journal = SqliteJournal(writer, hub, clock)
        opened.push_async_callback(journal.close)
        with suppress(StoreFull):  # the leases expire on their own; the database can be read meanwhile
            await journal.void_leases()
        close = opened.pop_all().aclose
        if lock is None:
            return _make_stores(writer, journal, path, clock, close)
        return _make_stores(writer, journal, path, clock, close, lock.announce)


@asynccontextmanager
async def open_sqlite_readonly(database: str, hub: EventHub, clock: Clock) -> AsyncGenerator[Stores, None]:
    """Open a database for reading. Its owner, if there is one, continues."""
    path = sqlite_path(database)
    async with _open_inline(open_read_only(path), path, hub, clock) as stores:
        yield stores


@asynccontextmanager
async def open_sqlite_exclusively(
    home: Home, what: str, hub: EventHub, clock: Clock
) -> AsyncGenerator[Stores, None]:
    """Own the database of a home and open it for changes. Raise StoreOwned, starting with `what`, while another
    process owns it."""
    path = str(database_path(home))
    with lock_database(home, what):
        refuse_missing_database(home)
        async with _open_inline(open_database(path), path, hub, clock) as stores:
            record_database(home)
            yield stores


@asynccontextmanager
async def _open_inline(
    connection: SqliteDatabase, path: str, hub: EventHub, clock: Clock
) -> AsyncGenerator[Stores, None]:
    """Open a database for a short command."""
    writer = InlineWriter(connection, path)
    try:
        yield _make_stores(writer, SqliteJournal(writer, hub, clock), path, clock, writer.close)
    finally:
        await writer.close()


def _make_writer(path: str, hub: EventHub) -> SqliteWriter:
    connection = open_database(path)
    if path == IN_MEMORY:
        return InlineWriter(connection)
    return ThreadWriter(connection, open_reader(path), path, hub.on_lost)


def _make_stores(
    writer: SqliteWriter,
    journal: SqliteJournal,
    path: str,
    clock: Clock,
    close: Callable[[], Awaitable[None]],
    announce: Callable[[str], None] = lambda socket: None,
) -> Stores:
    webhooks = SqliteWebhooks(writer)
    return Stores(
        journal=journal,
        runs=journal,
        wakes=journal,
        approvals=SqliteApprovals(writer),
        results=SqliteResults(writer),
        sessions=SqliteSessions(writer),
        overview=SqliteOverview(writer),
        books=SqliteAccounts(writer, clock),
        memories=SqliteMemories(writer),
        tokens=SqliteTokens(writer),
        sign_ins=SqliteSignIns(writer),
        requests=SqliteRequests(writer),
        deletions=SqliteDeletions(writer, path, clock),
        schedules=SqliteSchedules(writer),
        hooks=SqliteHooks(writer),
        webhooks=webhooks,
        letters=webhooks,
        channels=SqliteChannels(writer),
        evaluations=partial(_make_evaluations, writer),
        definitions=partial(_make_definitions, writer),
        dispatcher=partial(_make_dispatcher, journal),
        close=close,
        announce=announce,
        verify_writable=partial(verify_writable, writer),
    )


def _make_evaluations(writer: SqliteWriter) -> "Evaluations":
    from treadle.stores.sqlite.evaluations import SqliteEvaluations  # few commands use it

    return SqliteEvaluations(writer)


def _make_definitions(writer: SqliteWriter) -> "SharedDefinitions":
    from treadle.stores.sqlite.agent_versions import SqliteAgentVersions  # few commands use it

    return SqliteAgentVersions(writer)


def _make_dispatcher(wakes: Wakes, clock: Clock, worker: str, share: WorkerShare) -> MonitoredDispatcher:
    """Return the dispatcher of the only process."""
    if share.only_own and share.even_alone:
        return OwnRunsDispatcher(wakes, clock, worker, share.most)
    return LocalDispatcher(wakes, clock, worker, share.most)


# ── Ownership ──


def database_path(home: Home) -> Path:
    """Return the database file of a home. Raise UsageError if the database is on a server or in memory."""
    check_has_files(home.database_url, "There is no database file.")
    check_persistent(home.database_url)
    return Path(sqlite_path(home.database_url)).absolute()


@contextmanager
def lock_database(home: Home, what: str) -> Generator[None, None, None]:
    """Own the database of a home. Raise StoreOwned, starting with `what`, while another process owns it."""
    if home.database is None:
        home.ensure()
    try:
        lock = DatabaseLock(str(database_path(home)))
    except StoreOwned as error:
        raise StoreOwned(f"{what} {error}", error.socket, error.owner, error.since, error.pid) from None
    try:
        yield
    finally:
        lock.release()
