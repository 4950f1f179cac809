"""The real clock and real ids."""

import os
import random
import secrets
import time

from treadle.domain.identity import Instant, Prefix


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now(self) -> Instant:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class TimeOrderedIds:
    """UUIDv7 (RFC 9562): 48 bits of milliseconds, 12 that count within one, 62 of chance.

    Ids of one process are in order even when the clock steps back. They are names, not secrets."""

    def __init__(self) -> None:
        self._last = 0
        self._chance = random.Random(secrets.randbits(128)).getrandbits

    def __call__(self, prefix: Prefix) -> str:
        ticks = time.time_ns() * 4096 // 1_000_000  # 1/4096 of a millisecond
        if ticks <= self._last:
            ticks = self._last + 1
        self._last = ticks
        # 48 bits of time, version 7, 12 bits of time, variant 2, 62 bits of chance
        high = (ticks >> 12 << 16) | 0x7000 | (ticks & 0xFFF)
        return f"{prefix}_{high << 64 | 0x8000000000000000 | self._chance(62):032x}"


def worker_name() -> str:
    """A name that no other worker has, with a hint for people where to look."""
    return f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(4)}"
