"""What a run has reserved, and where it has met the end of an account."""

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.ids import Instant
from treadle.domain.quotas import QuotaKind


@durable("budget_reserved")
class BudgetReserved(EventData, frozen=True):
    """The maximum that the next model call may use, reserved in these accounts until it ends. A call whose end is
    not recorded counts in full."""

    step: int
    attempt: int
    accounts: tuple[str, ...]
    tokens: int
    cost: float = 0.0
    """Dollars; 0 where no price is known and none need be."""
    credits: float = 0.0


@durable("budget_exhausted")
class BudgetExhausted(EventData, frozen=True):
    """The next model call may cost more than the run has left. Amounts are dollars."""

    account: str
    ceiling: float
    used: float
    wanted: float


@durable("quota_warning")
class QuotaWarning(EventData, frozen=True):
    """Most of a quota is used. The event is written once per window."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    resets_at: Instant | None = None
    """When the first of it is free again; None: never, by itself."""


@durable("quota_exceeded")
class QuotaExceeded(EventData, frozen=True):
    """An account does not have what the next model call may use."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    wanted: float
    resets_at: Instant | None = None
    """When it has; None: never, by itself."""
