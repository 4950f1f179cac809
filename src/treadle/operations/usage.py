"""Usage of agents, and whether they may use more."""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Protocol

from msgspec import Struct

from treadle.core.accounts import describe_account, list_account_ceilings
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InsufficientCredits, InvalidState, QuotaExceeded, UsageError
from treadle.domain.ids import TokenId
from treadle.domain.quotas import Quotas, Shortage
from treadle.domain.time_format import format_minute
from treadle.domain.users import UserId
from treadle.ports.accounts import Accounts, AgentStates, UsageFilter, UsageKey, Used

EPOCH = date(1970, 1, 1)


class UsageAccounts(Accounts, AgentStates, Protocol):
    """Usage, and the states of agents."""


class UsageLine(Struct, frozen=True):
    """Usage by one agent, for one token or user, of one model, with one tag or on one day. A run with two tags
    counts in both lines."""

    key: str
    """Which one; empty: runs without a token or a tag, or runs that no model has answered."""
    runs: int = 0
    """Each is counted once, with the first model that answered it and on that day."""
    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    tool_calls: int = 0
    cost: float = 0.0
    """Dollars, as far as prices are known."""
    credits: float = 0.0
    unpriced_calls: int = 0
    """Calls whose cost is not known."""


class UsageQuery(Struct, frozen=True):
    """Which usage to return, and how it is grouped."""

    by: UsageKey = "agent"
    agents: tuple[str, ...] | None = None
    """None: all of them."""
    since: str | None = None
    """The first day, as 2026-03-01, in UTC."""
    until: str | None = None
    """The last day."""
    token: TokenId | None = None
    """Only usage of this access token; None: all usage."""
    owners: tuple[UserId, ...] | None = None
    """Only usage of runs of these users; None: all of them."""
    tags: tuple[str, ...] = ()
    """Only usage of runs that have all of these tags."""


ALL_BY_AGENT = UsageQuery()


async def compute_usage(accounts: Accounts, query: UsageQuery = ALL_BY_AGENT) -> Sequence[UsageLine]:
    """Return usage, a line for each value of what it is grouped by, sorted. Raise UsageError for an invalid day."""
    return sum_usage(await find_usage(accounts, query), query.by)


async def find_usage(accounts: Accounts, query: UsageQuery) -> list[Used]:
    """Return usage records, earliest day first. Raise UsageError for an invalid day."""
    wanted = UsageFilter(
        agents=query.agents,
        since=parse_day(query.since, "since"),
        until=parse_day(query.until, "until"),
        token=query.token,
        owners=query.owners,
        tags=query.tags,
        by=query.by,
    )
    return list(await accounts.usage(wanted))


def find_day(used: Used) -> date:
    return date.fromordinal(EPOCH.toordinal() + used.day)


def sum_usage(used: Iterable[Used], by: UsageKey) -> list[UsageLine]:
    sums: dict[str, UsageLine] = {}
    for each in used:
        for key in _list_keys(each, by):
            sums[key] = _plus(sums.get(key, UsageLine(key)), each)
    return [sums[key] for key in sorted(sums)]


def total(lines: Iterable[UsageLine]) -> UsageLine:
    """Return the sum of several lines."""
    whole = UsageLine("total")
    for line in lines:
        whole = _plus(whole, line)
    return whole


def _plus(line: UsageLine, more: Used | UsageLine) -> UsageLine:
    return UsageLine(
        line.key, *(getattr(line, name) + getattr(more, name) for name in UsageLine.__struct_fields__[1:])
    )


def _list_keys(used: Used, by: UsageKey) -> tuple[str, ...]:
    """Return the lines that count it: one, or one for each tag."""
    match by:
        case "agent":
            return (used.agent,)
        case "token":
            return (used.token or "",)
        case "model":
            return (used.model,)
        case "day":
            return (find_day(used).isoformat(),)
        case "user":
            return (used.owner,)
        case "tag":
            return used.tags or ("",)


def parse_day(day: str | None, name: str) -> int | None:
    """Return a day as the number of days since 1970-01-01. Raise UsageError if it is invalid."""
    if day is None:
        return None
    try:
        return (date.fromisoformat(day) - EPOCH).days
    except ValueError:
        raise UsageError(f"{name} is `{day}`; accepted: a day such as 2026-03-01.") from None


# ── Whether more may be used ───────────────────────────────────────────────────────────────────────


async def refuse_unless_running(agent: str, states: AgentStates) -> None:
    """Raise InvalidState for an agent that accepts no messages."""
    state = await states.state(agent)
    if state != "running":
        raise InvalidState(
            f"Agent `{agent}` is {state} and takes no messages. Start it with: treadle agents state {agent} running"
        )


async def refuse_spent(
    agent: AgentSpec, token: TokenId | None, token_quotas: Quotas | None, accounts: Accounts
) -> None:
    """Raise QuotaExceeded or InsufficientCredits if an account of a new run has nothing left."""
    ceilings = list_account_ceilings(agent, token, token_quotas)
    short = await accounts.find_shortage(ceilings) if ceilings else None
    if short is not None:
        raise _refusal(short)


def _refusal(short: Shortage) -> QuotaExceeded | InsufficientCredits:
    who = describe_account(short.account)
    if short.kind == "credits":
        return InsufficientCredits(
            f"{who} has spent {short.used:.6g} of {short.ceiling:g} credits: nothing is left. Raise quotas.credits."
        )
    again = "later" if short.resets_at is None else f"on {format_minute(short.resets_at)}"
    return QuotaExceeded(
        f"{who} has used {short.used:,.0f} model tokens in the last hour, and may use {short.ceiling:,.0f}. There "
        f"is room again {again}; or raise quotas.max_llm_tokens_per_hour.",
        short.resets_at,
    )
