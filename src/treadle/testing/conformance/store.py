"""Helpers of the store checks: the harness that opens a store, a recording publisher, and events to append."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Draft, Event, Origin, make_draft
from treadle.domain.errors import Fenced, NotClaimable, StoreError, TreadleError, UnknownRun
from treadle.domain.events import (
    CancelRequested,
    EventData,
    MessageSteered,
    RunEnd,
    RunQueued,
    StepStart,
    UserMessage,
)
from treadle.domain.ids import AgentId, EventId, Instant, RunId, SessionId
from treadle.domain.messages import Message, Text, user
from treadle.domain.runs import Metrics
from treadle.ports.accounts import Reserve
from treadle.ports.clock import Clock
from treadle.ports.journal import (
    Advance,
    Advanced,
    Claim,
    Journal,
    Publisher,
    Release,
    RunDraft,
    RunMessage,
    Runs,
    Wakes,
)
from treadle.testing.time import CountingIds, FakeClock


class Store(Journal, Wakes, Runs, Protocol):
    """The three ports that a store of runs implements."""


class StoreHarness(Protocol):
    """Opens a store. One harness represents one store, which is empty at first."""

    def open(self, publisher: Publisher, clock: Clock) -> AbstractAsyncContextManager[Store]:
        """Open the store as one process. Opened again, even while it is open, it is the same store in another
        process. Everything that depends on time, including leases, uses `clock`."""
        ...


StoreCheck = Callable[[StoreHarness], Awaitable[None]]


class Recorder:
    """A publisher that records what it receives. Implements `ports.journal.Publisher`."""

    def __init__(self) -> None:
        self.events: list[tuple[RunId, int, str, bytes]] = []
        """Every committed event in the order of publication: run, sequence, type, data."""
        self.deliveries: list[RunId] = []
        self.wakes: list[tuple[RunId, Instant]] = []
        self.errors: list[StoreError] = []

    def on_committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """Record the events."""
        self.events += [(origin.run_id, first + offset, made.type, made.raw) for offset, made in enumerate(drafts)]

    def on_delivered(self, run_id: RunId) -> None:
        """Record the delivery."""
        self.deliveries.append(run_id)

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Record the wake."""
        self.wakes.append((run_id, at))

    def on_lost(self, error: StoreError) -> None:
        """Record the loss."""
        self.errors.append(error)

    def list_published(self, run_id: RunId) -> list[tuple[int, str, bytes]]:
        """Return what was published about one run."""
        return [(sequence, type_, raw) for run, sequence, type_, raw in self.events if run == run_id]


class StoreProcess:
    """A store in one process, with the clock and the ids that all processes of a check share."""

    def __init__(self, store: Store, told: Recorder, clock: FakeClock, ids: CountingIds, name: str) -> None:
        self.store = store
        self.told = told
        self.clock = clock
        self.name = name
        self._ids = ids

    def draft(self, data: EventData) -> Draft:
        """Return an event to append."""
        return make_draft(EventId(self._ids("evt")), self.clock.now(), data)

    def origin(self, session: str | None = None, parent: RunId | None = None) -> Origin:
        """Return a new run, in a new session unless one is named."""
        return Origin(
            RunId(self._ids("run")), SessionId(session or self._ids("ses")), AgentId("agt_conformance"), parent
        )

    def child(self, claim: Claim, session: str | None = None) -> RunDraft:
        """Return a new child run."""
        return RunDraft(self.origin(session, claim.origin.run_id), self.opening())

    def tell(self, run_id: RunId, reason: str, key: str | None = None) -> RunMessage:
        """Return a delivery to another run."""
        return RunMessage(run_id, self.draft(CancelRequested(reason)), key or reason)

    async def submit(self, session: str | None = None, key: str | None = None, places: int | None = None) -> RunId:
        """Submit a run with the two events that every run starts with."""
        return await self.store.submit(self.origin(session), self.opening(places), key)

    def opening(self, places: int | None = None) -> tuple[Draft, ...]:
        """Return the two events that every run starts with. `places`: how many runs of its agent execute at a
        time."""
        agent = AgentSpec("conformance", "none", concurrency=places)
        return self.draft(RunQueued(agent)), self.draft(UserMessage(user("hello")))

    async def claim(self, run_id: RunId) -> Claim:
        """Claim a run for this process."""
        return await self.store.claim(run_id, self.name)

    async def claimed(self, session: str | None = None) -> Claim:
        """Return a new run that this process owns."""
        return await self.claim(await self.submit(session))

    async def advance(
        self,
        claim: Claim,
        seen: int,
        facts: Sequence[EventData] = (),
        intents: Sequence[EventData] = (),
        release: Release | None = None,
        reserve: Reserve | None = None,
        begin: Sequence[RunDraft] = (),
        tell: Sequence[RunMessage] = (),
        key: str | None = None,
    ) -> Advanced:
        """Append as the owner of the claim."""
        return await self.store.advance(
            Advance(
                run_id=claim.origin.run_id,
                epoch=claim.epoch,
                seen=seen,
                facts=tuple(self.draft(data) for data in facts),
                intents=tuple(self.draft(data) for data in intents),
                release=release,
                reserve=reserve,
                begin=tuple(begin),
                tell=tuple(tell),
                key=key,
            )
        )

    async def steer(self, run_id: RunId, text: str = "and another thing", key: str | None = None) -> int | None:
        """Deliver a message."""
        return await self.store.deliver(
            run_id, self.draft(MessageSteered(Message("user", (Text(text),)), "steer")), key or text
        )

    async def end(self, claim: Claim, seen: int, said: str = "done") -> Advanced:
        """End a run with one message for its session."""
        return await self.advance(claim, seen, intents=[END], release=Release(said=(user(said),)))

    async def types(self, run_id: RunId) -> list[str]:
        """Return the types of all events of a run. Check that their sequences start at 1 without gaps."""
        return [event.type for event in await self.gapless(run_id)]

    async def gapless(self, run_id: RunId) -> Sequence[Event]:
        """Return all events of a run. Check that their sequences start at 1 without gaps."""
        events = await self.store.read(run_id)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1)), "a gap in the sequence"
        return events


END = RunEnd("completed", "completed", Metrics())
OPENING = ["run_queued", "user_message"]
"""The types of the events that every run of a check starts with."""


def make_step(number: int) -> StepStart:
    """Return a small event, identified by its number."""
    return StepStart(number)


@asynccontextmanager
async def open_in_one_process(harness: StoreHarness) -> AsyncGenerator[StoreProcess, None]:
    """Open the store in one process."""
    clock, told = FakeClock(), Recorder()
    async with harness.open(told, clock) as store:
        yield StoreProcess(store, told, clock, CountingIds(), "worker-1")


@asynccontextmanager
async def open_in_two_processes(harness: StoreHarness) -> AsyncGenerator[tuple[StoreProcess, StoreProcess], None]:
    """Open the store in two processes at the same time."""
    clock, ids, told = FakeClock(), CountingIds(), (Recorder(), Recorder())
    async with harness.open(told[0], clock) as first, harness.open(told[1], clock) as second:
        yield (
            StoreProcess(first, told[0], clock, ids, "worker-1"),
            StoreProcess(second, told[1], clock, ids, "worker-2"),
        )


async def check_refused(attempt: Awaitable[object], error: type[TreadleError]) -> str:
    """Check that the attempt raises this error with a message, and return the message."""
    try:
        result = await attempt
    except error as raised:
        words = str(raised)
    else:
        raise AssertionError(f"expected {error.__name__}, got {result!r}")
    assert words, f"{error.__name__} has no message"
    return words


async def check_not_claimable(process: StoreProcess, run_id: RunId) -> None:
    """Check that the run cannot be claimed now."""
    await check_refused(process.claim(run_id), NotClaimable)


async def check_fenced(attempt: Awaitable[object]) -> None:
    """Check that the append is refused because the worker does not own the run."""
    await check_refused(attempt, Fenced)


async def check_unknown(attempt: Awaitable[object]) -> None:
    """Check that the run is reported as unknown."""
    await check_refused(attempt, UnknownRun)
