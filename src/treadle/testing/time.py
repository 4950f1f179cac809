"""Controllable time and ids for tests."""

import asyncio

from treadle.domain.ids import Instant, Prefix


class FakeClock:
    """A clock that advances only when told to. Implements `ports.clock.Clock`."""

    def __init__(self, now: Instant = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> Instant:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def pass_time(self, seconds: float) -> None:
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock, as an administrator or a time server does. No time passes."""
        self._now += seconds


class LoopClock:
    """The time of the running event loop, real or simulated, as a wall clock. Implements `ports.clock.Clock`."""

    def __init__(self, epoch: Instant = 1_800_000_000.0) -> None:
        self._epoch = epoch

    def now(self) -> Instant:
        return self._epoch + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class CountingIds:
    """Ids in the form of a UUIDv7 that count up and are the same in every test run."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, prefix: Prefix) -> str:
        self._last += 1
        return f"{prefix}_00000000000070008{self._last:015x}"
