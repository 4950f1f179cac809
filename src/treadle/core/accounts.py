"""Which accounts a run counts for that have an end."""

from treadle.domain.agents import AgentSpec
from treadle.domain.identity import RunId, TokenId
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.ports.accounts import Ceilings


def ceilings_of(agent: AgentSpec, token: TokenId | None, token_quotas: Quotas | None) -> tuple[Ceilings, ...]:
    """Those that a run shares with others: its agent's, and that of the token it was asked for with."""
    found: list[Ceilings] = []
    if agent.quotas != NO_QUOTAS:
        found.append(_ceilings(f"agent/{agent.name}", agent.quotas))
    if token is not None and token_quotas is not None and token_quotas != NO_QUOTAS:
        found.append(_ceilings(f"token/{token}", token_quotas))
    return tuple(found)


def tree_of(root: RunId, agent: AgentSpec) -> tuple[Ceilings, ...]:
    """The one that a run shares with the runs under it."""
    cost = agent.limits.cost
    return () if cost is None else (Ceilings(f"tree/{root}", cost=cost),)


def _ceilings(account: str, quotas: Quotas) -> Ceilings:
    return Ceilings(account, quotas.max_llm_tokens_per_hour, quotas.max_tool_calls_per_minute, quotas.credits)
