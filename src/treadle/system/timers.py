"""Many timers for the price of one. Nearly all are called off long before they would ring, so that only the next
one is known to the event loop."""

import asyncio
import math
from typing import Protocol


class Timer(Protocol):
    def ring(self) -> None:
        """The time has come."""
        ...


class Timers:
    """Timers of the event loop that runs. Setting one and calling it off cost next to nothing; it rings once."""

    def __init__(self) -> None:
        self._times: dict[Timer, float] = {}
        self._next = math.inf
        self._handle: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self, timer: Timer, at: float) -> None:
        """Ring at this time of the event loop, instead of any other that was set before."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what was set in another loop has ended with it
            self._loop, self._times, self._next, self._handle = loop, {}, math.inf, None
        self._times[timer] = at
        if at < self._next:
            self._arm(at)

    def call_off(self, timer: Timer) -> None:
        self._times.pop(timer, None)

    def _arm(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = at
        self._handle = None if at == math.inf or self._loop is None else self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """Ring those whose time has come, and wait for the next."""
        now = asyncio.get_running_loop().time()
        due = [timer for timer, at in self._times.items() if at <= now]
        self._next = math.inf
        try:
            for timer in due:
                if self._times.pop(timer, None) is not None:  # else an earlier one has called it off
                    timer.ring()
        finally:
            self._arm(min(self._times.values(), default=math.inf))
