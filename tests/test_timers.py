"""Many timers, one of which the event loop knows."""

import asyncio

import pytest

from tests.engine.running import virtually
from treadle.system.timers import Timers


class Bell:
    def __init__(self) -> None:
        self.rung: list[float] = []

    def fire(self) -> None:
        self.rung.append(asyncio.get_running_loop().time())


def test_each_timer_fires_once_in_time_and_cancelled_ones_do_not() -> None:
    async def run() -> None:
        timers, began = Timers(), asyncio.get_running_loop().time()
        early, late, off, moved = Bell(), Bell(), Bell(), Bell()
        timers.set(late, began + 0.10)
        timers.set(off, began + 0.02)
        timers.set(early, began + 0.04)
        timers.set(moved, began + 0.01)
        timers.set(moved, began + 0.06)
        timers.cancel(off)
        timers.cancel(off)
        await asyncio.sleep(0.2)
        assert off.rung == []
        for bell, after in ((early, 0.04), (moved, 0.06), (late, 0.10)):
            [at] = bell.rung
            assert at == pytest.approx(began + after)

    virtually(run())


def test_a_timer_that_sets_itself_again_fires_again() -> None:
    class Again(Bell):
        def fire(self) -> None:
            super().fire()
            if len(self.rung) < 3:
                timers.set(self, asyncio.get_running_loop().time() + 0.01)

    timers = Timers()

    async def run() -> None:
        bell = Again()
        timers.set(bell, 0.0)
        await asyncio.sleep(0.15)
        assert len(bell.rung) == 3

    virtually(run())


def test_another_event_loop_starts_without_timers() -> None:
    timers, bell = Timers(), Bell()

    async def leave() -> None:
        timers.set(Bell(), asyncio.get_running_loop().time() + 0.01)

    async def ring() -> None:
        timers.set(bell, asyncio.get_running_loop().time() + 0.03)
        await asyncio.sleep(0.1)

    virtually(leave())
    virtually(ring())
    assert len(bell.rung) == 1
