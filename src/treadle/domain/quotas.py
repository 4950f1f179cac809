"""What an agent, or whoever has an access token, may use: in an hour, in a minute, and in all."""

from typing import Literal

from msgspec import Struct

QuotaKind = Literal["tokens", "calls", "credits", "cost", "steps", "runs"]
"""Model tokens in an hour; tool calls in a minute; credits in all; dollars and steps of one run and those under it;
runs under it."""

WARN_AT = 0.8
"""The share of a quota with which it is time for a warning."""


class Quotas(Struct, frozen=True, omit_defaults=True):
    """What may be used. None: as much as is wanted."""

    max_llm_tokens_per_hour: int | None = None
    """Of the prompts and the replies of model calls, over the last sixty minutes."""
    max_tool_calls_per_minute: int | None = None
    credits: float | None = None
    """In all, from the first run on: raising it adds to what is left."""

    def __post_init__(self) -> None:
        for name in ("max_llm_tokens_per_hour", "max_tool_calls_per_minute"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, found {value}")
        if self.credits is not None and not self.credits >= 0:
            raise ValueError(f"credits must be 0 or more, found {self.credits}")


NO_QUOTAS = Quotas()


class CreditRate(Struct, frozen=True, forbid_unknown_fields=True):
    """How money becomes credits: the entry `credits` of `config.yaml`."""

    per_dollar: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.per_dollar < float("inf"):
            raise ValueError(f"per_dollar must be above 0, found {self.per_dollar}")
