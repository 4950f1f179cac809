"""The bounded accounts that a run counts for."""

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId, TokenId
from treadle.domain.lineage import Lineage, TreeCeiling
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.ports.accounts import Ceilings


def list_account_ceilings(
    agent: AgentSpec, token: TokenId | None, token_quotas: Quotas | None, lineage: Lineage | None = None
) -> tuple[Ceilings, ...]:
    """Return the accounts that a run shares with other runs: those of its agents and of its access token."""
    found: list[Ceilings] = []
    if agent.quotas != NO_QUOTAS:
        found.append(_make_ceilings(f"agent/{agent.name}", agent.quotas))
    for name, quotas in () if lineage is None else lineage.quotas:
        if name != agent.name:
            found.append(_make_ceilings(f"agent/{name}", quotas))
    if token is not None and token_quotas is not None and token_quotas != NO_QUOTAS:
        found.append(_make_ceilings(f"token/{token}", token_quotas))
    return tuple(found)


def list_tree_ceilings(run_id: RunId, agent: AgentSpec, lineage: Lineage | None) -> tuple[TreeCeiling, ...]:
    """Return the ceilings that a run shares with its child runs, and those that it shares with its ancestors."""
    limits = agent.limits
    steps = limits.max_steps if agent.budget == "shared" else None
    own = TreeCeiling(run_id, limits.cost, steps, limits.max_tree)
    return (own,) if lineage is None else (own, *lineage.ceilings)


def list_model_call_accounts(trees: tuple[TreeCeiling, ...]) -> tuple[Ceilings, ...]:
    """Return the accounts that a model call counts for."""
    bounded = [tree for tree in trees if (tree.cost, tree.steps) != (None, None)]
    return tuple([Ceilings(f"tree/{tree.run_id}", cost=tree.cost, steps=tree.steps) for tree in bounded])


def list_child_run_accounts(trees: tuple[TreeCeiling, ...]) -> tuple[Ceilings, ...]:
    """Return the accounts that a child run counts for."""
    return tuple([Ceilings(f"tree/{tree.run_id}", runs=tree.runs) for tree in trees if tree.runs is not None])


def _make_ceilings(account: str, quotas: Quotas) -> Ceilings:
    return Ceilings(account, quotas.max_llm_tokens_per_hour, quotas.max_tool_calls_per_minute, quotas.credits)


def describe_account(account: str) -> str:
    """Return an account as people call it."""
    kind, _, name = account.partition("/")
    return {"agent": f"Agent `{name}`", "token": f"The access token {name}"}.get(kind, "The run")
