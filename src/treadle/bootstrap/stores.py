"""The stores of one database of either kind."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treadle.operations.usage import UsageAccounts
from treadle.ports.access import IdempotencyStore, SignInStore, Tokens
from treadle.ports.approvals import Approvals
from treadle.ports.automation import DeadLetters, InboundWebhooks, Schedules, Webhooks
from treadle.ports.channel_store import ChannelStore
from treadle.ports.clock import Clock
from treadle.ports.deletion import Deletions
from treadle.ports.dispatcher import Dispatcher
from treadle.ports.journal import DepsProvider, Journal, Runs, Wakes
from treadle.ports.memory import KnownAgents, MemoryKeeper
from treadle.ports.memory_index import MemoryIndex, VectorStore
from treadle.ports.overview import Overview
from treadle.ports.results import Results
from treadle.ports.sessions import SessionCatalog

if TYPE_CHECKING:
    from treadle.ports.agent_versions import SharedDefinitions
    from treadle.ports.evaluations import Evaluations, Suites


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
    even_alone: bool = False
    """The same if no other process can do the rest."""


ALL, ONLY_OWN = WorkerShare(), WorkerShare(only_own=True)


Work = Callable[[], Awaitable[None]]


async def run_unlocked(name: str, work: Work) -> None:
    """Do the work without a lock: there is no other process."""
    del name
    await work()


def ignore_deps(worker: str, deps: DepsProvider) -> None:
    """Do nothing: there is no other process."""
    del worker, deps


async def accept() -> None:
    """Verify nothing: the database is in memory."""


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
    evaluations: "Callable[[], Evaluations]"
    """Returns the store of evaluations and feedback."""
    definitions: "Callable[[], SharedDefinitions]"
    """Returns the store of agent versions and shared skills."""
    dispatcher: Callable[[Clock, str, WorkerShare], MonitoredDispatcher]
    """Makes the dispatcher that executes runs, in the name of a worker."""
    close: Callable[[], Awaitable[None]]
    announce: Callable[[str], None] = lambda socket: None
    """Tells other commands where they can attach to the process that owns the database, if there is one owner."""
    alone: Callable[[str, Work], Awaitable[None]] = run_unlocked
    """Does work that only one of all processes on the database may do at a time, until it is cancelled."""
    provide_deps: Callable[[str, DepsProvider], None] = ignore_deps
    """Leaves runs with deps of their own to the worker of a process that has them, if there are other processes."""
    verify_writable: Callable[[], Awaitable[None]] = accept
    """Raises StoreError unless the database accepts writes."""
    shared: bool = False
    """Other processes can work on its runs too."""


def make_suites(home: Path) -> "Suites":
    """Return the suites of a home."""
    from treadle.evaluation.home_suites import HomeSuites  # few commands use it

    return HomeSuites(home)
