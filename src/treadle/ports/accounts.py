"""Accounts: what was used of what may be used. A model call *reserves* the most that it may use, in the transaction
of its intent, and is *settled* at what it did use, in the transaction of its reply. So whatever runs at the same
time, what is used and what is reserved never pass a ceiling together.

The names of accounts are `agent/NAME`, `token/ID` and `tree/RUN`. A reservation whose worker has died is settled
by whoever claims its run next, at all that was reserved: nobody knows what the call has cost."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import QuotaKind

HOUR_SECONDS = 3600.0
MINUTE_SECONDS = 60.0

AgentState = Literal["running", "paused", "stopped"]
"""Whether an agent takes messages: paused for a while, or stopped for good. Runs under way go on."""


class Ceilings(Struct, frozen=True, gc=False):
    """An account, and where it ends. None: nowhere."""

    account: str
    tokens: int | None = None
    """In an hour."""
    calls: int | None = None
    """Of tools, in a minute."""
    credits: float | None = None
    cost: float | None = None
    """Dollars."""
    steps: int | None = None
    """In all."""
    runs: int | None = None
    """In all."""


class Reserve(Struct, frozen=True, gc=False):
    """What an intent may use at most. It is refused together with the intent, and leaves nothing behind then.

    Tokens and money are reserved until the run's next `llm_response`, `llm_error`, `context_compacted` or
    `compaction_failed`; calls of tools, steps and runs are used at once."""

    accounts: tuple[Ceilings, ...]
    step: int = 0
    attempt: int = 0
    tokens: int = 0
    cost: float = 0.0
    credits: float = 0.0
    calls: int = 0
    steps: int = 0
    runs: int = 0


class AccountShortage(Struct, frozen=True, gc=False):
    """An account that has less left than is wanted, or is about to."""

    account: str
    kind: QuotaKind
    ceiling: float
    used: float
    """Settled, within the window where there is one."""
    reserved: float = 0.0
    """By calls under way."""
    wanted: float = 0.0
    resets_at: Instant | None = None
    """When enough of the window has passed; None: never, by itself."""


class UsageFilter(Struct, frozen=True):
    """Which part of what was used; None: whatever it has there."""

    agents: tuple[str, ...] | None = None
    since: int | None = None
    """The first day, counted from 1970-01-01, in UTC."""
    until: int | None = None
    """The last one."""


UsageKey = Literal["agent", "token", "model", "day"]
ALL_USAGE = UsageFilter()


class Used(Struct, frozen=True, gc=False):
    """What one agent used of one model, for one token, on one day."""

    agent: str
    token: TokenId | None
    model: str
    """Provider/model; empty: no model was resolved."""
    day: int
    """Counted from 1970-01-01, in UTC."""
    runs: int = 0
    """Each is counted once, with the first model that answered it."""
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    tool_calls: int = 0
    cost: float = 0.0
    credits: float = 0.0
    unpriced_calls: int = 0
    """Calls of models without a known price: what they cost is not in `cost`."""


class Balance(Struct, frozen=True):
    """What an account has used of what has no window, and what is reserved now."""

    account: str
    cost: float = 0.0
    credits: float = 0.0
    tokens: int = 0
    """In the last hour."""
    reserved_cost: float = 0.0
    reserved_credits: float = 0.0
    reserved_tokens: int = 0


class Accounts(Protocol):
    """What was used, by account and in sum."""

    async def spent(self, accounts: Sequence[Ceilings]) -> AccountShortage | None:
        """The first of these that has nothing left, whatever is under way; None: all have."""
        ...

    async def balance(self, account: str) -> Balance: ...

    async def usage(self, wanted: UsageFilter = ALL_USAGE) -> Sequence[Used]:
        """What was used, the earliest day first."""
        ...


class AgentStates(Protocol):
    """Which agents may be used."""

    async def state(self, agent: str) -> AgentState:
        """One that was never heard of is running."""
        ...

    async def set_state(self, agent: str, state: AgentState) -> bool:
        """Whether there is such an agent."""
        ...
