"""Checks for implementers of `ports.dispatcher.Dispatcher`.

They never sleep: they wait for an event, at most `TIMEOUT_SECONDS` of the loop's time. On a loop with virtual
time, such as `treadle.testing.simulation.loop.SimulatedLoop`, they take no time at all."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from treadle.domain.errors import StoreLocked
from treadle.domain.ids import Instant, RunId
from treadle.ports.dispatcher import Dispatcher
from treadle.ports.journal import Wakes

TIMEOUT_SECONDS = 60.0
"""After this time an expected event counts as missing."""

ONE, TWO, THREE = RunId("run_1"), RunId("run_2"), RunId("run_3")


class DispatcherHarness(Protocol):
    """Creates the dispatcher under test."""

    def make(self, wakes: Wakes, worker: str, concurrency: int) -> Dispatcher:
        """Return a dispatcher that has not been started. It finds runs that were not woken through `wakes`, renews
        the leases of `worker`, and works on at most `concurrency` runs at a time."""
        ...

    def now(self) -> Instant:
        """Return the wall clock that the dispatcher uses."""
        ...


DispatcherCheck = Callable[[DispatcherHarness], Awaitable[None]]


class ListedWakes:
    """Wakes that the check controls. Implements `ports.journal.Wakes`."""

    def __init__(self) -> None:
        self.due: list[RunId] = []
        """The runs that `runnable` returns."""
        self.owned: list[RunId] = []
        """The runs that `renew` returns."""
        self.failures = 0
        """How many calls will still fail."""
        self.renewed_for: set[str] = set()
        self._swept = asyncio.Condition()
        self._sweeps = 0
        self._renewals = 0

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        """Return the runs in `due`."""
        async with self._swept:
            self._sweeps += 1
            self._swept.notify_all()
        self._fail()
        return self.due[:limit]

    async def renew(self, worker: str) -> Sequence[RunId]:
        """Return the runs in `owned`."""
        self.renewed_for.add(worker)
        async with self._swept:
            self._renewals += 1
            self._swept.notify_all()
        self._fail()
        return list(self.owned)

    async def sweeps(self, times: int) -> None:
        """Wait until the dispatcher has swept this many more times, and once after."""
        async with self._swept:
            until = self._sweeps + times + 1
            await self._swept.wait_for(lambda: self._sweeps >= until)

    async def renewals(self, times: int) -> None:
        """Wait until the leases have been renewed this many more times, and once after."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._swept:
            until = self._renewals + times + 1
            await self._swept.wait_for(lambda: self._renewals >= until)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreLocked("The database is locked, for this check.")


class ObservedWork:
    """Work that a check can observe, hold up and release. Call it as `ports.dispatcher.Work`."""

    def __init__(self) -> None:
        self.done: list[RunId] = []
        """The runs whose work has finished, in order."""
        self.active: Counter[RunId] = Counter()
        self.most_at_once = 0
        self.most_of_one = 0
        self.cancelled: list[RunId] = []
        self.may_end = asyncio.Event()
        """Work continues until this is set. It is set initially."""
        self.may_end.set()
        self._changed = asyncio.Condition()

    async def __call__(self, run_id: RunId) -> None:
        """Work on a run."""
        self.active[run_id] += 1
        self.most_at_once = max(self.most_at_once, self.active.total())
        self.most_of_one = max(self.most_of_one, self.active[run_id])
        try:
            await self._notify()
            await self.may_end.wait()
            self.done.append(run_id)
        except asyncio.CancelledError:
            self.cancelled.append(run_id)
            raise
        finally:
            self.active[run_id] -= 1
        await self._notify()

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until the condition is met."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            await self._changed.wait_for(met)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class _Running:
    """A started dispatcher over listed wakes."""

    def __init__(self, harness: DispatcherHarness, concurrency: int = 100) -> None:
        self.wakes = ListedWakes()
        self.work = ObservedWork()
        self.dispatcher = harness.make(self.wakes, "worker-1", concurrency)

    async def __aenter__(self) -> "_Running":
        await self.dispatcher.start(self.work)
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.dispatcher.stop()


async def a_woken_run_is_worked_on(harness: DispatcherHarness) -> None:
    """A woken run is worked on, once."""
    async with _Running(harness) as running:
        running.dispatcher.wake(ONE, harness.now())
        await running.work.until(lambda: running.work.done == [ONE])
        await running.wakes.sweeps(1)
        assert running.work.done == [ONE]


async def a_wake_while_active_is_not_lost(harness: DispatcherHarness) -> None:
    """A run that is woken during its work is worked on again afterwards. Many wakes count as one."""
    async with _Running(harness) as running:
        work = running.work
        work.may_end.clear()
        running.dispatcher.wake(ONE, harness.now())
        await work.until(lambda: work.active[ONE] == 1)
        for _ in range(5):
            running.dispatcher.wake(ONE, harness.now())
        work.may_end.set()
        await work.until(lambda: work.done == [ONE, ONE])
        await running.wakes.sweeps(1)
        assert work.done == [ONE, ONE]
        assert work.most_of_one == 1


async def a_wake_in_the_future_waits(harness: DispatcherHarness) -> None:
    """A run that is woken for later is worked on then, not before. The order of wakes does not matter."""
    async with _Running(harness) as running:
        began: dict[RunId, Instant] = {}
        due = {ONE: harness.now() + 8, TWO: harness.now() + 1, THREE: harness.now()}
        for run_id, at in due.items():
            running.dispatcher.wake(run_id, at)
        while len(began) < len(due):
            await running.work.until(lambda: len(running.work.done) > len(began))
            began[running.work.done[-1]] = harness.now()
        assert list(began) == [THREE, TWO, ONE]
        for run_id, at in due.items():
            assert began[run_id] >= at, f"{run_id} was begun {at - began[run_id]} s early"


async def a_sweep_finds_runs_that_were_not_woken(harness: DispatcherHarness) -> None:
    """A runnable run is found without a wake, at the start and later."""
    async with _Running(harness) as running:
        for run_id in (ONE, TWO):
            running.wakes.due = [run_id]
            await running.work.until(lambda run_id=run_id: run_id in running.work.done)
            running.wakes.due = []


async def a_failed_sweep_is_retried(harness: DispatcherHarness) -> None:
    """A store that fails for a while only causes a delay."""
    async with _Running(harness) as running:
        running.wakes.failures = 3
        running.wakes.due = [ONE]
        await running.work.until(lambda: ONE in running.work.done)


async def no_run_is_worked_on_twice_at_once(harness: DispatcherHarness) -> None:
    """However often a run is woken and found, it is worked on once at a time."""
    async with _Running(harness) as running:
        work = running.work
        work.may_end.clear()
        running.wakes.due = [ONE, TWO]
        running.dispatcher.wake(ONE, harness.now())
        running.dispatcher.wake(ONE, harness.now() + 1)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await running.wakes.sweeps(3)
        running.dispatcher.wake(ONE, harness.now())
        work.may_end.set()
        await work.until(lambda: {ONE, TWO} <= set(work.done))
        assert work.most_of_one == 1


async def concurrency_is_limited(harness: DispatcherHarness) -> None:
    """No more runs are worked on at a time than allowed. The others follow as slots become free."""
    async with _Running(harness, concurrency=2) as running:
        work = running.work
        work.may_end.clear()
        runs = [RunId(f"run_{number}") for number in range(7)]
        for run_id in runs:
            running.dispatcher.wake(run_id, harness.now())
        await work.until(lambda: work.active.total() == 2)
        work.may_end.set()
        await work.until(lambda: len(work.done) == len(runs))
        assert sorted(work.done) == runs
        assert work.most_at_once == 2


async def work_that_raises_stops_nothing(harness: DispatcherHarness) -> None:
    """Work that raises, or is cancelled from within, affects neither other runs nor its own next attempt."""
    running = _Running(harness)
    faults: list[BaseException] = [ValueError("a fault"), StoreLocked("a store"), asyncio.CancelledError()]

    async def faulty(run_id: RunId) -> None:
        if faults:
            raise faults.pop()
        await running.work(run_id)

    await running.dispatcher.start(faulty)
    try:
        for left in (2, 1, 0):
            running.wakes.due = [ONE]
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while len(faults) > left:
                    await running.wakes.sweeps(1)
        running.dispatcher.wake(TWO, harness.now())
        await running.work.until(lambda: {ONE, TWO} <= set(running.work.done))
    finally:
        await running.dispatcher.stop()


async def leases_are_renewed_while_work_lasts(harness: DispatcherHarness) -> None:
    """While a run is worked on, the leases of this worker are renewed, and the work continues."""
    async with _Running(harness) as running:
        running.work.may_end.clear()
        running.wakes.owned = [ONE]
        running.dispatcher.wake(ONE, harness.now())
        await running.work.until(lambda: running.work.active[ONE] == 1)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await running.wakes.sweeps(3)
        assert running.wakes.renewed_for == {"worker-1"}
        assert running.work.active[ONE] == 1


async def work_on_a_lost_run_is_stopped(harness: DispatcherHarness) -> None:
    """When `renew` no longer names a run, work on it is cancelled because another worker owns it. Other work
    continues."""
    async with _Running(harness) as running:
        work = running.work
        work.may_end.clear()
        running.wakes.owned = [ONE, TWO]
        for run_id in (ONE, TWO):
            running.dispatcher.wake(run_id, harness.now())
        await work.until(lambda: work.active.total() == 2)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await running.wakes.sweeps(2)
            running.wakes.owned = [TWO]
            await running.wakes.sweeps(2)
        assert work.cancelled == [ONE]
        assert work.active[TWO] == 1


async def stopping_cancels_and_returns(harness: DispatcherHarness) -> None:
    """`stop` cancels the work in progress and returns when all of it has ended. Nothing starts after it, and no
    task is left."""
    before = asyncio.all_tasks()
    running = _Running(harness, concurrency=2)
    work = running.work
    async with running:
        work.may_end.clear()
        for run_id in (ONE, TWO, THREE):
            running.dispatcher.wake(run_id, harness.now())
        running.dispatcher.wake(RunId("run_later"), harness.now() + 5)
        await work.until(lambda: work.active.total() == 2)
    assert sorted(work.cancelled) == [ONE, TWO]
    assert work.active.total() == 0
    work.may_end.set()
    running.dispatcher.wake(THREE, harness.now())
    assert asyncio.all_tasks() <= before, "a task was left behind"
    assert work.done == []


async def stopping_waits_for_work_to_finish(harness: DispatcherHarness) -> None:
    """`stop` waits for cancelled work that still records its state."""
    running = _Running(harness)
    began, written = asyncio.Event(), asyncio.Event()

    async def work(run_id: RunId) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            written.set()

    await running.dispatcher.start(work)
    running.dispatcher.wake(ONE, harness.now())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await began.wait()
        await running.dispatcher.stop()
    assert written.is_set()


async def stopping_gives_time_to_finish(harness: DispatcherHarness) -> None:
    """With grace, work that ends in time is not cancelled. It keeps its leases meanwhile, and nothing new
    starts."""
    running = _Running(harness)
    work, wakes = running.work, running.wakes
    await running.dispatcher.start(work)
    work.may_end.clear()
    wakes.owned = [ONE]
    running.dispatcher.wake(ONE, harness.now())
    await work.until(lambda: work.active[ONE] == 1)
    stopping = asyncio.ensure_future(running.dispatcher.stop(grace=TIMEOUT_SECONDS))
    await wakes.renewals(1)
    running.dispatcher.wake(TWO, harness.now())
    wakes.due = [THREE]
    await wakes.renewals(1)
    assert (work.active[ONE], work.cancelled) == (1, [])
    work.may_end.set()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await stopping
    assert (work.done, work.cancelled) == ([ONE], [])


async def grace_is_limited(harness: DispatcherHarness) -> None:
    """Work that takes longer than the grace is cancelled."""
    running = _Running(harness)
    work = running.work
    await running.dispatcher.start(work)
    work.may_end.clear()
    running.dispatcher.wake(ONE, harness.now())
    await work.until(lambda: work.active[ONE] == 1)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await running.dispatcher.stop(grace=0.2)
    assert (work.done, work.cancelled) == ([], [ONE])


CHECKS: Final[tuple[DispatcherCheck, ...]] = (
    a_woken_run_is_worked_on,
    a_wake_while_active_is_not_lost,
    a_wake_in_the_future_waits,
    a_sweep_finds_runs_that_were_not_woken,
    a_failed_sweep_is_retried,
    no_run_is_worked_on_twice_at_once,
    concurrency_is_limited,
    work_that_raises_stops_nothing,
    leases_are_renewed_while_work_lasts,
    work_on_a_lost_run_is_stopped,
    stopping_cancels_and_returns,
    stopping_waits_for_work_to_finish,
    stopping_gives_time_to_finish,
    grace_is_limited,
)
"""Every check of this port."""
