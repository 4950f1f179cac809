"""The stores of one database of either kind, and the ways to open it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treadle.config.database_url import check_persistent, is_postgres, sqlite_path
from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.engine.event_hub import EventHub
from treadle.operations.usage import UsageAccounts
from treadle.ports.access import IdempotencyStore, SignInStore, Tokens
from treadle.ports.approvals import Approvals
from treadle.ports.automation import DeadLetters, InboundWebhooks, Schedules, Webhooks
from treadle.ports.channel_store import ChannelState, ChannelStore
from treadle.ports.clock import Clock
from treadle.ports.deletion import DatabaseFacts, Deletions
from treadle.ports.dispatcher import Dispatcher
from treadle.ports.journal import Journal, Runs, Wakes
from treadle.ports.memory import KnownAgents, MemoryKeeper
from treadle.ports.memory_index import MemoryIndex, VectorStore
from treadle.ports.overview import Overview
from treadle.ports.results import Results
from treadle.ports.sessions import SessionCatalog
from treadle.system.clock import SystemClock, TimeOrderedIds

if TYPE_CHECKING:
    from treadle.stores.sqlite.lock import Owner


class StoredMemories(MemoryKeeper, MemoryIndex, VectorStore, KnownAgents, Protocol):
    """The memories of agents, and their index."""


class MonitoredDispatcher(Dispatcher, Protocol):
    """A dispatcher that reports whether it has anything to do."""

    @property
    def busy(self) -> bool:
        """Whether a run is being executed here, or about to be."""
        ...


class WorkerShare(Struct, frozen=True):
    """How much of the work on a database one process does."""

    most: int = 1000
    """Maximum number of runs that it executes concurrently; 0 for none."""
    only_own: bool = False
    """If other processes can do the rest: only runs that it started or sent something to."""


ALL, ONLY_OWN = WorkerShare(), WorkerShare(only_own=True)


Work = Callable[[], Awaitable[None]]


async def run_unlocked(name: str, work: Work) -> None:
    """Do the work without a lock: there is no other process."""
    del name
    await work()


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one database, for one process. Closed by `close`."""

    journal: Journal
    runs: Runs
    wakes: Wakes
    approvals: Approvals
    results: Results
    sessions: SessionCatalog
    overview: Overview
    books: UsageAccounts
    memories: StoredMemories
    tokens: Tokens
    sign_ins: SignInStore
    requests: IdempotencyStore
    deletions: Deletions
    schedules: Schedules
    hooks: InboundWebhooks
    webhooks: Webhooks
    letters: DeadLetters
    channels: ChannelStore
    dispatcher: Callable[[Clock, str, WorkerShare], MonitoredDispatcher]
    """Makes the dispatcher that executes runs, in the name of a worker."""
    close: Callable[[], Awaitable[None]]
    announce: Callable[[str], None] = lambda socket: None
    """Tells other commands where they can attach to the process that owns the database, if there is one owner."""
    alone: Callable[[str, Work], Awaitable[None]] = run_unlocked
    """Does work that only one of all processes on the database may do at a time, until it is cancelled."""
    shared: bool = False
    """Other processes can work on its runs too."""


async def open_stores(database: str, hub: EventHub, clock: Clock) -> Stores:
    """Open a database for an engine. Raise StoreOwned if the database has a single owner and that is another
    process."""
    if is_postgres(database):
        return await _import_postgres().open_postgres(database, hub, clock)
    from treadle.bootstrap.sqlite import open_sqlite

    return await open_sqlite(database, hub, clock)


def open_stores_readonly(database: str, hub: EventHub | None = None) -> AbstractAsyncContextManager[Stores]:
    """Open a database for reading. Its owner, if there is one, continues."""
    if is_postgres(database):
        return _import_postgres().connect_postgres(database, hub or _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_readonly

    return open_sqlite_readonly(database, hub or _make_silent_hub(), SystemClock())


def open_home_readonly(home: Home) -> AbstractAsyncContextManager[Stores]:
    """Open the database of a home for reading. Raise UsageError if it is only in memory."""
    check_persistent(home.database_url)
    return open_stores_readonly(home.database_url)


def find_owner(home: Home) -> "Owner | None":
    """Return the process that owns the database of a home, as far as is known, or None."""
    from treadle.stores.sqlite.lock import read_owner

    return read_owner(sqlite_path(home.database_url))


def open_stores_exclusively(home: Home, what: str) -> AbstractAsyncContextManager[Stores]:
    """Open the database of a home for changes, without an engine. Raise StoreOwned, starting with `what`, while
    another process owns it."""
    if is_postgres(home.database_url):
        return _import_postgres().connect_postgres(home.database_url, _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_exclusively

    return open_sqlite_exclusively(home, what, _make_silent_hub(), SystemClock())


async def read_server_facts(
    database: str, recent_seconds: int
) -> tuple[DatabaseFacts | None, int, Sequence[tuple[str, int]], str]:
    """Return facts about a database on a server, without changing it: its contents (None if it is empty), the
    format that this version writes, the recent findings of guards, and how vectors are compared."""
    return await _import_postgres().read_postgres_facts(database, recent_seconds)


async def read_channel_states(database: str) -> Sequence[ChannelState]:
    """Return what servers recorded about their channels, without changing the database."""
    if is_postgres(database):
        return await _import_postgres().read_postgres_channel_states(database)
    async with open_stores_readonly(database) as stores:
        return await stores.channels.states()


def _import_postgres() -> ModuleType:
    """Return the module for PostgreSQL. Raise UsageError if its driver is not installed."""
    try:
        from treadle.bootstrap import postgres
    except ModuleNotFoundError as error:
        raise UsageError(
            f"The database is on PostgreSQL, and {error.name} is not installed. Install it with "
            'pip install "treadle[postgres]", or use another database (TREADLE_DATABASE_URL).'
        ) from None
    return postgres


def _make_silent_hub() -> EventHub:
    """Return a hub without readers. The next engine finds what was changed."""
    return EventHub(SystemClock(), TimeOrderedIds(), lambda run_id, at: None)
