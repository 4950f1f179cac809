"""All that is kept in one database, whichever kind it is, and the ways to open it."""

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
from treadle.operations.memory_service import KnownAgents
from treadle.operations.usage import Books
from treadle.ports.access import IdempotencyStore, Tokens
from treadle.ports.approvals import Approvals
from treadle.ports.automation import DeadLetters, InboundWebhooks, Schedules, Webhooks
from treadle.ports.clock import Clock
from treadle.ports.deletion import DatabaseFacts, Deletions
from treadle.ports.dispatcher import Dispatcher
from treadle.ports.journal import Journal, Runs, Wakes
from treadle.ports.memory import MemoryKeeper
from treadle.ports.memory_index import MemoryIndex, VectorStore
from treadle.ports.results import Results
from treadle.ports.sessions import SessionCatalog
from treadle.system.clock import SystemClock, TimeOrderedIds

if TYPE_CHECKING:
    from treadle.stores.sqlite.lock import Owner


class StoredMemories(MemoryKeeper, MemoryIndex, VectorStore, KnownAgents, Protocol):
    """What agents remember, and how it is found."""


class MonitoredDispatcher(Dispatcher, Protocol):
    """A dispatcher that can tell whether it has anything to do."""

    @property
    def busy(self) -> bool:
        """Whether a run is being worked on here, or about to be."""
        ...


class WorkerShare(Struct, frozen=True):
    """How much of the work on a database one process takes."""

    most: int = 1000
    """Runs that it works on at once; 0: none."""
    only_own: bool = False
    """Where others can take the rest: only runs that it has begun itself, or sent something to."""


ALL, ONLY_OWN = WorkerShare(), WorkerShare(only_own=True)


Work = Callable[[], Awaitable[None]]


async def run_unlocked(name: str, work: Work) -> None:
    """There is no other process."""
    del name
    await work()


@dataclass(frozen=True, slots=True)
class Stores:
    """Made for one process, over one connection or more; closed by `close`."""

    journal: Journal
    runs: Runs
    wakes: Wakes
    approvals: Approvals
    results: Results
    sessions: SessionCatalog
    books: Books
    memories: StoredMemories
    tokens: Tokens
    requests: IdempotencyStore
    deletions: Deletions
    schedules: Schedules
    hooks: InboundWebhooks
    webhooks: Webhooks
    letters: DeadLetters
    dispatcher: Callable[[Clock, str, WorkerShare], MonitoredDispatcher]
    """Who sees to it that runs are looked at, in the name of a worker."""
    close: Callable[[], Awaitable[None]]
    announce: Callable[[str], None] = lambda socket: None
    """Tell other commands where they can attach to the process that owns the database, where one process does."""
    alone: Callable[[str, Work], Awaitable[None]] = run_unlocked
    """Do what one process at a time does, of all that work on the database, until it is cancelled."""
    shared: bool = False
    """Other processes can work on its runs too."""


async def open_stores(database: str, hub: EventHub, clock: Clock) -> Stores:
    """For an engine. Raises StoreOwned where the database has one owner, and another process is that."""
    if is_postgres(database):
        return await _import_postgres().open_postgres(database, hub, clock)
    from treadle.bootstrap.sqlite import open_sqlite

    return await open_sqlite(database, hub, clock)


def open_stores_readonly(database: str, hub: EventHub | None = None) -> AbstractAsyncContextManager[Stores]:
    """For whoever only reads: the owner of the database, if it has one, goes on."""
    if is_postgres(database):
        return _import_postgres().connect_postgres(database, hub or _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_readonly

    return open_sqlite_readonly(database, hub or _make_silent_hub(), SystemClock())


def open_home_readonly(home: Home) -> AbstractAsyncContextManager[Stores]:
    """The same, of a home, whose database is kept when this command ends: else UsageError."""
    check_persistent(home.database_url)
    return open_stores_readonly(home.database_url)


def find_owner(home: Home) -> "Owner | None":
    """Return the process that owns the database of a home, where one process does, as far as is known."""
    from treadle.stores.sqlite.lock import read_owner

    return read_owner(sqlite_path(home.database_url))


def open_stores_exclusively(home: Home, what: str) -> AbstractAsyncContextManager[Stores]:
    """For whoever changes what is kept, without an engine. Raises StoreOwned, which begins with `what`, while
    another process owns the database."""
    if is_postgres(home.database_url):
        return _import_postgres().connect_postgres(home.database_url, _make_silent_hub(), SystemClock())
    from treadle.bootstrap.sqlite import open_sqlite_exclusively

    return open_sqlite_exclusively(home, what, _make_silent_hub(), SystemClock())


async def read_server_facts(
    database: str, lately: int
) -> tuple[DatabaseFacts | None, int, Sequence[tuple[str, int]], str]:
    """What a database on a server holds, left as it is: its facts (None: it is empty), the format that this version
    writes, what guards did lately, and what compares vectors."""
    return await _import_postgres().read_postgres_facts(database, lately)


def _import_postgres() -> ModuleType:
    """What knows PostgreSQL; UsageError where it is not installed."""
    try:
        from treadle.bootstrap import postgres
    except ModuleNotFoundError as error:
        raise UsageError(
            f"The database is on PostgreSQL, and {error.name} is not installed. Install it with "
            'pip install "treadle[postgres]", or use another database (TREADLE_DATABASE_URL).'
        ) from None
    return postgres


def _make_silent_hub() -> EventHub:
    """Nobody in this process listens; whoever opens an engine next finds what was changed."""
    return EventHub(SystemClock(), TimeOrderedIds(), lambda run_id, at: None)
