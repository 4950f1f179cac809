"""Many timers on one event loop handle. Nearly all timers are cancelled long before they fire, so only the next one
is registered with the event loop."""

import asyncio
import math
from typing import Protocol


class Timer(Protocol):
    def fire(self) -> None:
        """Called when the time has come."""
        ...


class Timers:
    """Timers of the running event loop. Setting and cancelling one is cheap. Each fires once."""

    def __init__(self) -> None:
        self._times: dict[Timer, float] = {}
        self._next = math.inf
        self._handle: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self, timer: Timer, at: float) -> None:
        """Fire at this time of the event loop, replacing a time that was set before."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # timers of another loop ended with that loop
            self._loop, self._times, self._next, self._handle = loop, {}, math.inf, None
        self._times[timer] = at
        if at < self._next:
            self._arm(at)

    def cancel(self, timer: Timer) -> None:
        self._times.pop(timer, None)

    def _arm(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = at
        self._handle = None if at == math.inf or self._loop is None else self._loop.call_at(at, self._fire_due)

    def _fire_due(self) -> None:
        """Fire the timers that are due, and wait for the next."""
        now = asyncio.get_running_loop().time()
        due = [timer for timer, at in self._times.items() if at <= now]
        self._next = math.inf
        try:
            for timer in due:
                if self._times.pop(timer, None) is not None:  # else an earlier timer cancelled it
                    timer.fire()
        finally:
            self._arm(min(self._times.values(), default=math.inf))
