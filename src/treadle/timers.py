"""Many timers for the price of one. Nearly all are called off long before they would ring, so that only the next
one is known to the event loop."""

import asyncio
import math
from typing import Protocol


class Ringing(Protocol):
    def ring(self) -> None:
        """The time has come."""
        ...


class Timers:
    """Timers of one event loop. Setting one and calling it off cost next to nothing; it rings once."""

    def __init__(self) -> None:
        self._times: dict[Ringing, float] = {}
        self._next = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def set(self, timer: Ringing, at: float) -> None:
        """Ring at this time of the event loop, instead of any other that was set before."""
        self._times[timer] = at
        if at < self._next:
            self._arm(at)

    def call_off(self, timer: Ringing) -> None:
        self._times.pop(timer, None)

    def _arm(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next = at
        self._handle = None if at == math.inf else asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        """Ring those whose time has come, and wait for the next."""
        now = asyncio.get_running_loop().time()
        due = [timer for timer, at in self._times.items() if at <= now]
        self._next = math.inf
        for timer in due:
            self._times.pop(timer, None)
            timer.ring()
        self._arm(min(self._times.values(), default=math.inf))
