"""Whether a database accepts writes, for load balancers and supervisors."""

import asyncio
from collections.abc import Awaitable, Callable

from treadle.domain.errors import StoreError
from treadle.ports.clock import Clock

VALID_SECONDS = 1.0
"""How long a result is valid. Anyone may ask, so a question does not always cost a write."""
TIMEOUT_SECONDS = 2.0


class Readiness:
    """Verifies, with a write that changes nothing, that a database accepts writes."""

    def __init__(self, verify: Callable[[], Awaitable[None]], clock: Clock) -> None:
        self._verify = verify
        self._clock = clock
        self._lock = asyncio.Lock()
        self._result: tuple[float, str] | None = None

    async def find_fault(self) -> str:
        """Return why the database accepts no writes; empty if it does."""
        async with self._lock:
            if self._result is None or self._clock.monotonic() - self._result[0] >= VALID_SECONDS:
                self._result = None  # nothing is known while a verification is cancelled
                fault = await self._try()
                self._result = self._clock.monotonic(), fault
            return self._result[1]

    async def _try(self) -> str:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await self._verify()
        except StoreError as error:
            return f"the database accepts no writes: {type(error).__name__}"
        except TimeoutError:
            return "the database does not answer"
        return ""
