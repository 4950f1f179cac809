"""The real clock, real ids and the name of this worker."""

import os
import secrets
import time
from collections.abc import Callable
from functools import partial

from treadle.domain.ids import Instant, Prefix


class SystemClock:
    """The time of day of the machine. It jumps when the machine's clock is set. Implements `ports.clock.Clock`.

    Use it for times that others also measure: schedules, signatures, expiry of tokens."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class SteadyClock:
    """The time of day at process start plus the time that has passed since, including sleep. Implements
    `ports.clock.Clock`.

    Setting the machine's clock does not affect a running process, so deadlines, retries and leases take as long as
    they should."""

    def __init__(self, wall: Callable[[], Instant] = time.time, elapsed: Callable[[], float] | None = None) -> None:
        self._elapsed = elapsed or _elapsed
        self._start = wall() - self._elapsed()

    def now(self) -> Instant:
        return self._start + self._elapsed()

    def align(self, now: Instant) -> None:
        """Continue from this time, which several processes agree on."""
        self._start = now - self._elapsed()

    monotonic = staticmethod(time.monotonic)


_elapsed = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Returns seconds since an arbitrary moment. Sleep of the machine counts if the system has such a clock."""


_STRIDE = 0x9E3779B1
"""Odd, so that the ends of four billion ids differ, and large, so that successive ids look different."""
_COUNTS = [f"{count:03x}" for count in range(0x1000)]


class TimeOrderedIds:
    """UUIDv7 (RFC 9562): 48 bits of milliseconds, a 12-bit counter, and 62 random bits drawn once per process, of
    which the last 32 change with every id, so that people can tell ids apart by their end.

    Ids of one process stay in order even if the clock steps back. They are names, not secrets."""

    def __init__(self) -> None:
        self._tail = f"{0x80000000 | secrets.randbits(30):08x}"
        self._end = secrets.randbits(32)
        self._millisecond = 0
        self._count = 0
        self._head = ""

    def __call__(self, prefix: Prefix) -> str:
        millisecond = time.time_ns() // 1_000_000
        self._count += 1
        if millisecond > self._millisecond:
            self._begin(millisecond)
        elif self._count > 0xFFF:
            self._begin(self._millisecond + 1)
        self._end = (self._end + _STRIDE) & 0xFFFFFFFF
        return f"{prefix}_{self._head}{_COUNTS[self._count]}{self._tail}{self._end:08x}"

    def _begin(self, millisecond: int) -> None:
        self._millisecond, self._count = millisecond, 0
        self._head = f"{millisecond:012x}7"


def make_worker_name() -> str:
    """Return a unique name for this worker, with the host and process id as a hint for operators."""
    return f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(4)}"
