"""An event loop with virtual time whose order is drawn from a seed."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: every task would wait forever."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks that are ready at the same time in an order drawn from `chance`. If none is ready, time jumps
    to the next timer. There is no I/O and there are no threads: what would run in one runs at once, since virtual
    time does not wait for threads."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._virtual_now = 0.0
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual_now

    def pass_time(self, seconds: float) -> None:
        self._virtual_now += seconds

    def _run_once(self) -> None:
        ready: deque[Any] = vars(self)["_ready"]
        if len(ready) > 1:
            handles = list(ready)
            self._chance.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        getattr(super(), "_run_once")()  # noqa: B009 -- the base class hides it from type checkers

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _NoSelector:
    """Replaces waiting for I/O: waiting advances virtual time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self._loop.pass_time(timeout)
        return []
