"""An event loop with virtual time whose order is drawn from a seed."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: every task would wait forever."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks that are ready at the same time in an order drawn from `chance`. If none is ready, time jumps
    to the next timer, but not while a thread runs, whose time is real. There is no I/O."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._virtual_now = 0.0
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9
        self._threads = 0
        self._called_back = threading.Event()

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
        self._threads += 1
        done = super().run_in_executor(executor, func, *args)
        done.add_done_callback(self._end_thread)
        return done

    def _end_thread(self, _: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def wait_for_threads(self) -> bool:
        """Wait until a thread has called back. Return False if none is running."""
        if self._threads == 0:
            return False
        self._called_back.wait()
        self._called_back.clear()
        return True

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        self._called_back.set()


class _NoSelector:
    """Replaces waiting for I/O: waiting advances virtual time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout != 0 and self._loop.wait_for_threads():
            return []
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self._loop.pass_time(timeout)
        return []
