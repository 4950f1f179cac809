"""Whether a database accepts writes, for load balancers and supervisors."""

import asyncio
from collections.abc import Awaitable, Callable

from treadle.domain.errors import StoreError
from treadle.ports.clock import Clock

FAULT_SECONDS = 1.0
"""How long a fault is reported without another attempt. Success is verified for each request."""
TIMEOUT_SECONDS = 2.0


class Readiness:
    """Verifies, with a write that changes nothing, that a database accepts writes."""

    def __init__(self, verify: Callable[[], Awaitable[None]], clock: Clock) -> None:
        self._verify = verify
        self._clock = clock
        self._lock = asyncio.Lock()
        self._fault = ""
        self._failed_at = 0.0

    async def find_fault(self) -> str:
        """Return why the database accepts no writes; empty if it does."""
        async with self._lock:
            if self._fault and self._clock.monotonic() - self._failed_at < FAULT_SECONDS:
                return self._fault
            self._fault = await self._try()
            self._failed_at = self._clock.monotonic()
            return self._fault

    async def _try(self) -> str:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._verify()
        except StoreError as error:
            return f"the database accepts no writes: {type(error).__name__}"
        except TimeoutError:
            return "the database does not answer"
        return ""
