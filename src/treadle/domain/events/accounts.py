"""Events about accounts: what a run has reserved, and which account has no room left."""

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
    """Dollars; 0 if no price is known and no account limits money."""
    credits: float = 0.0


@durable("budget_exhausted")
class BudgetExhausted(EventData, frozen=True):
    """The next model call may cost more than the run has left. Amounts are dollars."""

    account: str
    ceiling: float
    used: float
    wanted: float
    unpriced: bool = False
    """No price is known for the model to be called; `wanted` is 0."""


@durable("quota_warning")
class QuotaWarning(EventData, frozen=True):
    """Most of a quota is used. The event is written once per window."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    resets_at: Instant | None = None
    """When the first part of it is free again; null: not through the passage of time."""


@durable("quota_exceeded")
class QuotaExceeded(EventData, frozen=True):
    """An account does not have what the next model call may use."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    wanted: float
    resets_at: Instant | None = None
    """When it has enough again; null: not through the passage of time."""
    unpriced: bool = False
    """No price is known for the model to be called; `wanted` is 0."""
