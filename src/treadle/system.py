"""The real clock and real ids."""

import os
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

    Ids of one process are in order even when the clock steps back."""

    def __init__(self) -> None:
        self._last = 0
        self._chance = b""
        self._used = 0

    def __call__(self, prefix: Prefix) -> str:
        ticks = time.time_ns() * 4096 // 1_000_000  # 1/4096 of a millisecond
        self._last = ticks = max(ticks, self._last + 1)
        high = (ticks >> 12 << 16) | 0x7000 | (ticks & 0xFFF)
        return f"{prefix}_{high:016x}{self._random62() | 0x8000000000000000:016x}"

    def _random62(self) -> int:
        """62 bits of chance, drawn from the system in blocks."""
        if self._used >= len(self._chance):
            self._chance, self._used = secrets.token_bytes(1024), 0
        drawn = int.from_bytes(self._chance[self._used : self._used + 8])
        self._used += 8
        return drawn & 0x3FFFFFFFFFFFFFFF


def worker_name() -> str:
    """A name that no other worker has, with a hint for people where to look."""
    return f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(4)}"
