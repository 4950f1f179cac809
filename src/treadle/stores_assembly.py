"""All that is kept in one database, whichever kind it is, and the ways to open it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from treadle.database_url import refuse_passing
from treadle.engine.hub import Hub
from treadle.home import Home
from treadle.ports.access import Requests, Tokens
from treadle.ports.approvals import Approvals
from treadle.ports.automation import DeadLetters, Hooks, Schedules, Webhooks
from treadle.ports.clock import Clock
from treadle.ports.journal import Journal, Runs, Wakes
from treadle.ports.keeping import Deletions
from treadle.ports.memory import MemoryKeeper
from treadle.ports.memory_index import MemoryIndex, VectorShelf
from treadle.ports.results import Results
from treadle.ports.sessions import Sessions
from treadle.service.memory import Owners
from treadle.service.usage import Books
from treadle.system import SystemClock, TimeOrderedIds


class StoredMemories(MemoryKeeper, MemoryIndex, VectorShelf, Owners, Protocol):
    """What agents remember, and how it is found."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Made for one process, over one connection or more; closed by `close`."""

    journal: Journal
    runs: Runs
    wakes: Wakes
    approvals: Approvals
    results: Results
    sessions: Sessions
    books: Books
    memories: StoredMemories
    tokens: Tokens
    requests: Requests
    deletions: Deletions
    schedules: Schedules
    hooks: Hooks
    webhooks: Webhooks
    letters: DeadLetters
    close: Callable[[], Awaitable[None]]
    announce: Callable[[str], None] = lambda socket: None
    """Tell other commands where they can attach to the process that owns the database, where one process does."""


async def open_stores(database: str, hub: Hub, clock: Clock) -> Stores:
    """For an engine. Raises StoreOwned where the database has one owner, and another process is that."""
    from treadle.sqlite_assembly import open_sqlite

    return await open_sqlite(database, hub, clock)


def look_at_stores(database: str, hub: Hub | None = None) -> AbstractAsyncContextManager[Stores]:
    """For whoever only reads: the owner of the database, if it has one, goes on."""
    from treadle.sqlite_assembly import look_at_sqlite

    return look_at_sqlite(database, hub or _nobody(), SystemClock())


def look_at_home(home: Home) -> AbstractAsyncContextManager[Stores]:
    """The same, of a home, whose database is kept when this command ends: else UsageError."""
    refuse_passing(home.database_url)
    return look_at_stores(home.database_url)


def own_stores(home: Home, what: str) -> AbstractAsyncContextManager[Stores]:
    """For whoever changes what is kept, without an engine. Raises StoreOwned, which begins with `what`, while
    another process owns the database."""
    from treadle.sqlite_assembly import own_sqlite

    return own_sqlite(home, what, _nobody(), SystemClock())


def _nobody() -> Hub:
    """Nobody in this process listens; whoever opens an engine next finds what was changed."""
    return Hub(SystemClock(), TimeOrderedIds(), lambda run_id, at: None)
