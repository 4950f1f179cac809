"""Helpers of the checks of everything that a store keeps besides runs: the harness that opens it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from treadle.domain.ids import AgentId
from treadle.domain.memories import MemoryScope
from treadle.domain.users import LOCAL_USER
from treadle.ports.access import IdempotencyStore, SignInStore, Tokens
from treadle.ports.accounts import Accounts
from treadle.ports.automation import DeadLetters, InboundWebhooks, Schedules, Webhooks
from treadle.ports.clock import Clock
from treadle.ports.deletion import Deletions
from treadle.ports.journal import Publisher
from treadle.ports.memory import MemoryKeeper
from treadle.ports.memory_index import MemoryIndex, VectorStore
from treadle.ports.overview import Overview
from treadle.ports.sessions import SessionCatalog
from treadle.testing.conformance.store import Recorder, Store, StoreProcess
from treadle.testing.time import CountingIds, FakeClock

AGENT = AgentId("agt_conformance")
"""The agent of all runs of a check."""
OWN = MemoryScope(AGENT, LOCAL_USER)
"""The memories of the local user."""
OTHER = AgentId("agt_other")


class MemoryStore(MemoryKeeper, MemoryIndex, VectorStore, Protocol):
    """The three ports that a store of memories implements."""


class WebhookStore(Webhooks, DeadLetters, Protocol):
    """The two ports that a store of webhooks implements."""


@dataclass(frozen=True, slots=True)
class FullStore:
    """Everything that a store keeps, in one process."""

    runs: Store
    memories: MemoryStore
    tokens: Tokens
    sign_ins: SignInStore
    requests: IdempotencyStore
    schedules: Schedules
    hooks: InboundWebhooks
    webhooks: WebhookStore
    deletions: Deletions
    sessions: SessionCatalog
    accounts: Accounts
    overview: Overview


class FullStoreHarness(Protocol):
    """Opens a store. One harness represents one store, which is empty at first."""

    def open(self, publisher: Publisher, clock: Clock) -> AbstractAsyncContextManager[FullStore]:
        """Open the store as one process. Opened again, it is the same store in another process."""
        ...


FullStoreCheck = Callable[[FullStoreHarness], Awaitable[None]]


class FullStoreProcess(StoreProcess):
    """A process with everything that its store keeps."""

    def __init__(self, kept: FullStore, told: Recorder, clock: FakeClock, ids: CountingIds, name: str) -> None:
        super().__init__(kept.runs, told, clock, ids, name)
        self.kept = kept

    @property
    def memories(self) -> MemoryStore:
        return self.kept.memories


@asynccontextmanager
async def open_full_store(harness: FullStoreHarness) -> AsyncGenerator[FullStoreProcess, None]:
    """Open the store in one process."""
    clock, told = FakeClock(), Recorder()
    async with harness.open(told, clock) as kept:
        yield FullStoreProcess(kept, told, clock, CountingIds(), "worker-1")


@asynccontextmanager
async def open_full_store_twice(
    harness: FullStoreHarness,
) -> AsyncGenerator[tuple[FullStoreProcess, FullStoreProcess], None]:
    """Open the store in two processes at the same time."""
    clock, ids, told = FakeClock(), CountingIds(), (Recorder(), Recorder())
    async with harness.open(told[0], clock) as first, harness.open(told[1], clock) as second:
        yield (
            FullStoreProcess(first, told[0], clock, ids, "worker-1"),
            FullStoreProcess(second, told[1], clock, ids, "worker-2"),
        )
