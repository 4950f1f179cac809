"""Accounts: usage against limits.

A model call *reserves* the most that it can use, in the transaction of its intent, and is *settled* at its actual
usage, in the transaction of its reply. So usage and reservations together never exceed a ceiling, however many
calls run at the same time.

Accounts are named `agent/NAME`, `token/ID` and `tree/RUN`. If a worker dies, the next worker that claims the run
settles its reservation at the full amount, because the actual cost of the call is unknown."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.ids import TokenId
from treadle.domain.quotas import Shortage
from treadle.domain.users import UserId

HOUR_SECONDS = 3600.0
MINUTE_SECONDS = 60.0

AgentState = Literal["running", "paused", "stopped"]
"""Whether an agent accepts messages: paused is temporary, stopped is permanent. Runs in progress continue."""


class Ceilings(Struct, frozen=True, gc=False):
    """An account and its ceilings. None means unlimited."""

    account: str
    tokens: int | None = None
    """Per hour."""
    calls: int | None = None
    """Tool calls per minute."""
    credits: float | None = None
    cost: float | None = None
    """In dollars."""
    steps: int | None = None
    """In total."""
    runs: int | None = None
    """In total."""


class Reserve(Struct, frozen=True, gc=False):
    """The most that an intent can use. If an account does not have it, the intent is refused and nothing is
    reserved.

    Tokens and money stay reserved until the run's next `llm_response`, `llm_error`, `context_compacted` or
    `compaction_failed`. Tool calls, steps and runs count as used at once."""

    accounts: tuple[Ceilings, ...]
    step: int = 0
    attempt: int = 0
    tokens: int = 0
    cost: float = 0.0
    credits: float = 0.0
    calls: int = 0
    steps: int = 0
    runs: int = 0


UsageKey = Literal["agent", "token", "model", "day", "user", "tag"]


class UsageFilter(Struct, frozen=True):
    """Selects usage records. None means no restriction."""

    agents: tuple[str, ...] | None = None
    since: int | None = None
    """The first day, in days since 1970-01-01 (UTC)."""
    until: int | None = None
    """The last day."""
    token: TokenId | None = None
    owners: tuple[UserId, ...] | None = None
    """Only usage of runs of these users."""
    tags: tuple[str, ...] = ()
    """Only usage of runs that have all of these tags."""
    by: UsageKey = "agent"
    """What it is grouped by. Users and tags are told apart only if it is one of them."""


ALL_USAGE = UsageFilter()


class Used(Struct, frozen=True, gc=False):
    """Usage of one model by one agent with one token on one day."""

    agent: str
    token: TokenId | None
    model: str
    """`provider/model`; empty if no model was resolved."""
    day: int
    """In days since 1970-01-01 (UTC)."""
    owner: UserId = ""
    """The user of the runs, if usage is grouped by user. Empty otherwise, and if users were not counted yet."""
    tags: tuple[str, ...] = ()
    """The tags of the runs, if usage is grouped by tag."""
    runs: int = 0
    """A run is counted once, with the first model that answered it."""
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    tool_calls: int = 0
    cost: float = 0.0
    credits: float = 0.0
    unpriced_calls: int = 0
    """Calls of models without a known price. Their cost is not in `cost`."""


class Balance(Struct, frozen=True):
    """The total usage of an account, and what is reserved now."""

    account: str
    cost: float = 0.0
    credits: float = 0.0
    tokens: int = 0
    """In the last hour."""
    reserved_cost: float = 0.0
    reserved_credits: float = 0.0
    reserved_tokens: int = 0


class Accounts(Protocol):
    """Usage by account and in total."""

    async def find_shortage(self, accounts: Sequence[Ceilings]) -> Shortage | None:
        """Return the first of these accounts that has nothing left, not counting reservations, or None."""
        ...

    async def balance(self, account: str) -> Balance: ...

    async def usage(self, filter: UsageFilter = ALL_USAGE) -> Sequence[Used]:
        """Return usage records, earliest day first."""
        ...


class AgentStates(Protocol):
    """The state of each agent: running, paused or stopped."""

    async def state(self, agent: str) -> AgentState:
        """Return the state of an agent. An unknown agent is running."""
        ...

    async def set_state(self, agent: str, state: AgentState) -> bool:
        """Set the state of an agent. Return False if there is no such agent."""
        ...
