"""Quotas of agents and access tokens, and the value of credits."""

from math import inf, isfinite
from typing import Literal

from msgspec import Struct

from treadle.domain.ids import Instant
from treadle.domain.limits import Amount, PositiveInt

QuotaKind = Literal["tokens", "calls", "credits", "cost", "steps", "runs"]
"""Model tokens per hour; tool calls per minute; credits in total; dollars and steps of a run with its child runs;
number of child runs."""


class Shortage(Struct, frozen=True, omit_defaults=True, gc=False):
    """An account that has less left than a run wants."""

    account: str
    """`agent/NAME`, `token/ID` or `tree/RUN`."""
    kind: QuotaKind
    ceiling: float
    used: float
    reserved: float = 0.0
    """Amount reserved by calls in progress."""
    wanted: float | None = None
    """Null: no price is known for the model to be called."""
    resets_at: Instant | None = None
    """When the account has enough again; null: not through the passage of time."""

    @property
    def wanted_amount(self) -> float:
        """What is wanted; infinite if no price is known."""
        return inf if self.wanted is None else self.wanted


def find_known_amount(amount: float) -> float | None:
    """Return an amount that is wanted, or None if it is infinite because no price is known."""
    return amount if isfinite(amount) else None


WARN_SHARE = 0.8
"""The share of a quota at which a warning is due."""


class Quotas(Struct, frozen=True, omit_defaults=True):
    """Quotas. Null: no limit."""

    max_llm_tokens_per_hour: PositiveInt | None = None
    """Tokens of prompts and replies in the last sixty minutes."""
    max_tool_calls_per_minute: PositiveInt | None = None
    """Tool calls in the last minute. A run waits when it is reached."""
    credits: Amount | None = None
    """Credits in total. Raise the number to add credits."""

    def __post_init__(self) -> None:
        for name in ("max_llm_tokens_per_hour", "max_tool_calls_per_minute"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, found {value}")
        if self.credits is not None and not self.credits >= 0:
            raise ValueError(f"credits must be 0 or more, found {self.credits}")


NO_QUOTAS = Quotas()


class CreditRate(Struct, frozen=True, forbid_unknown_fields=True):
    """The value of credits: the entry `credits` of `config.yaml`."""

    per_dollar: float = 1.0
    """Credits per dollar of cost."""

    def __post_init__(self) -> None:
        if not 0 < self.per_dollar < float("inf"):
            raise ValueError(f"per_dollar must be above 0, found {self.per_dollar}")
