"""What the local dispatcher does beyond the contract of its port."""

import asyncio
from collections.abc import Sequence

from tests.testing.harnesses import simulated
from treadle.dispatch.local import LocalDispatcher
from treadle.domain.ids import Instant, RunId
from treadle.testing.conformance.dispatcher import TIMEOUT_SECONDS, ListedWakes, ObservedWork
from treadle.testing.time import FakeClock, LoopClock

ONE = RunId("run_1")


def test_no_timer_fires_early_when_the_clock_is_set_back() -> None:
    """And one that is set forward rings it at the next look, not hours later."""

    class JumpingClock(LoopClock):
        offset = 0.0

        def now(self) -> Instant:
            return super().now() + self.offset

    async def run() -> tuple[float, float]:
        clock, wakes, labour = JumpingClock(), ListedWakes(), ObservedWork()
        dispatcher = LocalDispatcher(wakes, clock, "worker")
        await dispatcher.start(labour)
        dispatcher.wake(ONE, clock.now() + 7200)
        clock.offset = -3600
        await wakes.sweeps(2)
        assert labour.done == []
        clock.offset = 7200
        before = asyncio.get_running_loop().time()
        await labour.until(lambda: labour.done == [ONE])
        await dispatcher.stop()
        return before, asyncio.get_running_loop().time()

    before, after = simulated(run())
    assert after - before <= 5


def test_the_dispatcher_is_busy_while_it_has_work() -> None:
    async def run() -> None:
        wakes, labour = ListedWakes(), ObservedWork()
        dispatcher = LocalDispatcher(wakes, FakeClock(), "worker")
        assert not dispatcher.busy
        await dispatcher.start(labour)
        labour.may_end.clear()
        dispatcher.wake(ONE, 0)
        assert dispatcher.busy
        labour.may_end.set()
        await labour.until(lambda: labour.done == [ONE])
        await wakes.sweeps(1)
        assert not dispatcher.busy
        await dispatcher.stop()

    simulated(run())


def test_stopping_before_starting_is_harmless() -> None:
    async def run() -> None:
        await LocalDispatcher(ListedWakes(), FakeClock(), "worker").stop()

    simulated(run())


def test_sweeps_continue_after_an_error() -> None:
    """Without them leases run out and lost wakes stay lost."""

    class BrokenWakes(ListedWakes):
        broken = True

        async def runnable(self, limit: int = 100) -> Sequence[RunId]:
            if self.broken:
                self.broken = False
                raise RuntimeError("nobody foresaw this")
            return await super().runnable(limit)

    async def run() -> None:
        wakes, labour = BrokenWakes(), ObservedWork()
        dispatcher = LocalDispatcher(wakes, LoopClock(), "worker")
        await dispatcher.start(labour)
        wakes.due = [ONE]
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await labour.until(lambda: ONE in labour.done)
        finally:
            await dispatcher.stop()

    simulated(run())
