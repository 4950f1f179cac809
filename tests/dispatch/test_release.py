"""What a worker writes when it releases or ends a run while other commits of that run are in flight."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from tests.testing.harnesses import InMemory, simulated
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import StoreLost
from treadle.domain.events import ToolCallEnd
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.engine.deps import Worker
from treadle.engine.event_hub import EventHub
from treadle.engine.owned_run import OwnedRun, claim_run
from treadle.ports.journal import ANY, Advance, Advanced, Claim, Release
from treadle.testing.conformance.store import END, OPENING, Store, StoreProcess, make_step, open_in_one_process
from treadle.testing.time import CountingIds, FakeClock


class SlowJournal:
    """A journal whose advances take a second, as on a slow disk. Implements `Journal`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        return await self._store.submit(origin, events, key)

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        return await self._store.claim(run_id, worker)

    async def advance(self, advance: Advance) -> Advanced:
        advanced = await self._store.advance(advance)
        await asyncio.sleep(1)
        return advanced

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        return await self._store.deliver(run_id, event, key, seen)

    async def history(self, run_id: RunId) -> Sequence[Message]:
        return await self._store.history(run_id)

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        return await self._store.read(run_id, after, limit)


@asynccontextmanager
async def claim_new_run(process: StoreProcess) -> AsyncGenerator[OwnedRun, None]:
    """Yield a run that this process owns, on a slow journal."""
    clock, ids = FakeClock(), CountingIds()
    worker = Worker(
        name="worker",
        journal=SlowJournal(process.store),
        hub=EventHub(clock, ids, lambda run_id, at: None),
        clock=clock,
        ids=ids,
        random=lambda: 0.5,
    )
    async with claim_run(await process.submit(), worker) as log:
        yield log


def end_call(call_id: str) -> ToolCallEnd:
    return ToolCallEnd(call_id, "look", "done", 0)


def test_a_result_is_written_once_when_its_worker_is_stopped() -> None:
    """Two calls have ended, one result is on its way to the disk and the other waits for its turn, when the worker
    is told to stop."""

    async def run() -> Counter[str]:
        async with open_in_one_process(InMemory()) as process:

            async def work() -> None:
                async with claim_new_run(process) as log:
                    runs.append(log.origin.run_id)
                    log.record(end_call("first"))
                    first = asyncio.ensure_future(log.flush())
                    await asyncio.sleep(0.1)
                    log.record(end_call("second"))
                    second = asyncio.ensure_future(log.flush())
                    await asyncio.gather(first, second)

            runs: list[RunId] = []
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0.5)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(10)
            events = await process.gapless(runs[0])
            return Counter(event.data.call_id for event in events if isinstance(event.data, ToolCallEnd))

    assert simulated(run()) == Counter(first=1, second=1)


def test_an_end_is_decided_again_if_a_delivery_was_committed_before_it() -> None:
    """An end was decided while a result was on its way to the disk, and that commit met a delivery: the end was
    decided without knowing of it."""

    async def run() -> tuple[bool, list[str]]:
        async with open_in_one_process(InMemory()) as process, claim_new_run(process) as log:
            run_id = log.origin.run_id
            await process.steer(run_id)
            log.record(end_call("call"))
            flushing = asyncio.ensure_future(log.flush())
            await asyncio.sleep(0.5)
            accepted = await log.release(Release(said=log.state.own_messages), END)
            await flushing
            return accepted, await process.types(run_id)

    accepted, types = simulated(run())
    assert types[:4] == [*OPENING, "message_steered", "tool_call_end"]
    assert not accepted, "what was steered is not in what the run said"


def test_the_error_of_a_commit_without_a_waiting_caller_is_reported() -> None:
    async def run() -> list[str]:
        unheard: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheard.append(str(context.get("exception"))))
        async with open_in_one_process(InMemory()) as process:

            class LosingJournal(SlowJournal):
                async def advance(self, advance: Advance) -> Advanced:
                    await asyncio.sleep(1)
                    raise StoreLost("for this test")

            claim = await process.claimed()
            clock, ids = FakeClock(), CountingIds()
            hub = EventHub(clock, ids, lambda run_id, at: None)
            journal = LosingJournal(process.store)
            log = OwnedRun(
                claim,
                Worker(
                    name="worker",
                    journal=journal,
                    hub=hub,
                    clock=clock,
                    ids=ids,
                    random=lambda: 0.5,
                ),
            )
            log.record(make_step(1))
            flushing = asyncio.ensure_future(log.flush())
            await asyncio.sleep(0.1)
            flushing.cancel()
            await asyncio.wait([flushing])
            await asyncio.sleep(2)
            del log, flushing
        return unheard

    assert simulated(run()) == []
