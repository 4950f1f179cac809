"""Circuit breakers: after too many failures a model gets no calls for a while, then one probe call."""

from collections import deque
from typing import Literal

from msgspec import Struct

from treadle.ports.model import BreakerChange

WINDOW_SECONDS = 60.0
MIN_CALLS = 10
"""A breaker does not open on fewer calls than this."""
OPEN_AT_FAILURE_SHARE = 0.5
"""The share of failed calls at which a breaker opens."""
OPEN_SECONDS = 30.0
MAX_OPEN_SECONDS = 300.0
"""Each failed probe doubles the time that a breaker stays open, up to this limit."""
PROBE_TIMEOUT_SECONDS = 900.0
"""A probe that reports no result within this time counts as lost."""
PROBE_WAIT_SECONDS = 1.0
"""How long other calls wait while a probe is in progress."""

Phase = Literal["closed", "open", "half_open"]


class BreakerState(Struct, frozen=True):
    """The state of a breaker as shown to users and in metrics."""

    provider: str
    model: str
    phase: Phase
    calls: int
    """Calls in the current window."""
    failures: int
    opened: int
    """How many times the breaker has opened."""


class CircuitBreaker:
    """Implements `ports.model.Breaker` for one model of one provider."""

    def __init__(self) -> None:
        self.opened = 0
        self._calls: deque[tuple[float, bool]] = deque()
        self._failures = 0
        self._open_until: float | None = None
        self._open_seconds = OPEN_SECONDS
        self._probing = False
        self._prober: str = ""
        self._probe_expires_at = 0.0

    @property
    def phase(self) -> Phase:
        if self._open_until is None:
            return "closed"
        return "half_open" if self._probing else "open"

    @property
    def calls(self) -> int:
        return len(self._calls)

    @property
    def failures(self) -> int:
        return self._failures

    def is_open(self, now: float) -> bool:
        """Return whether a call made now would have to wait."""
        return self._open_until is not None and (now < self._open_until or self._probing)

    def wait(self, now: float, who: str = "") -> float | None:
        if self._open_until is None:
            return None
        if now < self._open_until:
            return self._open_until - now
        if self._probing and who != self._prober and now < self._probe_expires_at:
            return PROBE_WAIT_SECONDS
        self._probing, self._prober = True, who
        self._probe_expires_at = now + PROBE_TIMEOUT_SECONDS
        return None

    def record(self, failed: bool, now: float, who: str = "") -> BreakerChange | None:
        self._drop_old_calls(now)
        self._calls.append((now, failed))
        self._failures += failed
        if self._open_until is not None:
            return self._record_probe(failed, now, who)
        if failed and len(self._calls) >= MIN_CALLS and self._failures >= OPEN_AT_FAILURE_SHARE * len(self._calls):
            self._open_seconds = OPEN_SECONDS
            return self._open(now)
        return None

    def abandon(self, who: str = "") -> None:
        if who == self._prober:
            self._probing = False

    def _record_probe(self, failed: bool, now: float, who: str) -> BreakerChange | None:
        if not self._probing or who != self._prober:
            return None  # a call that was sent before the breaker opened
        self._probing = False
        if failed:
            self._open_seconds = min(MAX_OPEN_SECONDS, 2 * self._open_seconds)
            self._open_until = now + self._open_seconds
            return None
        self._open_until = None
        self._calls.clear()
        self._failures = 0
        return "closed"

    def _open(self, now: float) -> BreakerChange:
        self.opened += 1
        self._open_until = now + self._open_seconds
        self._probing = False
        return "opened"

    def _drop_old_calls(self, now: float) -> None:
        while self._calls and self._calls[0][0] < now - WINDOW_SECONDS:
            _, failed = self._calls.popleft()
            self._failures -= failed


class Breakers:
    """The breakers of one process. All callers of one model at one address share a breaker."""

    def __init__(self) -> None:
        self._breakers: dict[tuple[str, str, str], CircuitBreaker] = {}

    def get(self, provider: str, address: str, model: str) -> CircuitBreaker:
        breaker = self._breakers.get((provider, address, model))
        if breaker is None:
            breaker = self._breakers[provider, address, model] = CircuitBreaker()
        return breaker

    def states(self) -> list[BreakerState]:
        return [
            BreakerState(
                provider=provider,
                model=model,
                phase=breaker.phase,
                calls=breaker.calls,
                failures=breaker.failures,
                opened=breaker.opened,
            )
            for (provider, _, model), breaker in self._breakers.items()
        ]


SHARED_BREAKERS = Breakers()
