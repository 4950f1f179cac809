"""The limits of child runs. A child never has more than its parent: no additional tool, folder, network access,
model or level of depth; and the rules, secrets and ceilings of its parent apply to it too."""

from posixpath import join, normpath

import msgspec

from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec, Errors, Limits, Quality
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId
from treadle.domain.lineage import EVALUATOR_ROLES, Ancestor, Lineage, Order, Role, TreeCeiling
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.schedules import Heartbeat

_STRICTNESS: dict[SandboxMode, int] = {"off": 0, "auto": 1, "required": 2}


def make_lineage(parent: RunState, call_id: str, role: Role, agent: str | None = None) -> Lineage:
    """Return the lineage of a child run of an agent (None: a copy of the parent's, or an evaluator)."""
    above = parent.lineage
    return Lineage(
        root=parent.root,
        depth=1 if above is None else above.depth + 1,
        call_id=call_id,
        role=role,
        agents=(*(() if above is None else above.agents), parent.agent.name),
        tools=_list_inherited_tools(parent, role, agent),
        approvals=(*(() if above is None else above.approvals), parent.agent.approvals),
        ceilings=parent.tree.ceilings,
        quotas=_inherited_quotas(parent),
        steps_before=(0 if above is None else above.steps_before) + parent.steps_of_tree,
        above=(*(() if above is None else above.above), Ancestor(parent.origin.run_id, call_id)),
    )


def _list_inherited_tools(parent: RunState, role: Role, agent: str | None) -> tuple[str, ...] | None:
    """Return the tools that a child run may have at most, or None for those of its agent."""
    if role in EVALUATOR_ROLES:
        return ()
    if agent in parent.agent.agents:
        return None if parent.lineage is None else parent.lineage.tools
    return tuple(parent.tools)


def detach_lineage(lineage: Lineage, run_id: RunId) -> Lineage:
    """Return the lineage of a fork of a child run.

    The same limits apply, but it has no ancestors to notify, and its usage is counted from zero."""
    return msgspec.structs.replace(lineage, root=run_id, depth=0, ceilings=(), steps_before=0, above=())


def cap_by_ceilings(ceilings: tuple[TreeCeiling, ...], agent: AgentSpec) -> AgentSpec:
    """Return the agent with its own limits capped by these shared ceilings."""
    limits = agent.limits
    costs = [cost for cost in (limits.cost, *(tree.cost for tree in ceilings)) if cost is not None]
    steps = [count for count in (limits.max_steps, *(tree.steps for tree in ceilings)) if count is not None]
    capped = msgspec.structs.replace(limits, cost=min(costs, default=None), max_steps=min(steps, default=None))
    return msgspec.structs.replace(agent, limits=capped)


def _inherited_quotas(parent: RunState) -> tuple[tuple[str, Quotas], ...]:
    """Return the quotas of the parent and its ancestors, each agent once."""
    above = () if parent.lineage is None else parent.lineage.quotas
    own = parent.agent.quotas
    known = own == NO_QUOTAS or any(name == parent.agent.name for name, _ in above)
    return above if known else (*above, (parent.agent.name, own))


def copy_agent(parent: AgentSpec, order: Order) -> AgentSpec:
    """Return a copy of the parent for one task. It is not evaluated, and it saves no memories. Its instructions are
    also those of a small model."""
    persona, small = parent.persona, parent.small_models
    if order.instructions is not None:
        persona, small = order.instructions, msgspec.structs.replace(small, persona=None)
    return msgspec.structs.replace(
        parent,
        persona=persona,
        small_models=small,
        output=None,
        limits=msgspec.structs.replace(parent.limits, cost=None, deadline=None),
        memory=msgspec.structs.replace(parent.memory, remember=False),
        heartbeat=Heartbeat(),
        quality=Quality(),
        errors=Errors(),
    )


def apply_order(agent: AgentSpec, parent: AgentSpec, order: Order) -> AgentSpec:
    """Return the agent with the requested tools and model. Raise UsageError for a model that neither agent may
    use."""
    if order.tools is not None:
        agent = agent.with_tools(order.tools)
    if order.model is None:
        return agent
    for owner in (parent, agent):
        if order.model in allowed_models(owner):
            provider = owner.provider if order.model == owner.model else None
            return msgspec.structs.replace(agent, model=order.model, provider=provider, routing=None)
    known = ", ".join(f"`{name}`" for name in dict.fromkeys((*allowed_models(parent), *allowed_models(agent))))
    raise UsageError(f"the model `{order.model}` may not be asked; these may: {known}")


def allowed_models(agent: AgentSpec) -> tuple[str, ...]:
    """Return the models that an agent may use."""
    tiers = () if agent.routing is None else tuple([tier.model for tier in agent.routing.tiers])
    summaries = () if agent.compaction.model is None else (agent.compaction.model,)
    return (agent.model, *tiers, *agent.fallbacks, *summaries)


def narrow_agent(child: AgentSpec, parent: AgentSpec, workspace: str, seconds: float | None) -> AgentSpec:
    """Return the agent as a child of this parent in this folder, with a time limit in seconds."""
    own = child.workspace
    inside = own is not None and _is_inside(own, (workspace,))
    return msgspec.structs.replace(
        child,
        limits=_narrow_limits(child.limits, parent.limits, seconds),
        sandbox=_narrow_sandbox(child.confinement, parent.confinement, workspace),
        workspace=own if inside else workspace,
    )


def _narrow_limits(child: Limits, parent: Limits, seconds: float | None) -> Limits:
    times = [each for each in (child.deadline_seconds, seconds) if each is not None]
    return msgspec.structs.replace(
        child,
        max_depth=max(0, min(child.max_depth, parent.max_depth - 1)),
        max_children=min(child.max_children, parent.max_children),
        max_tree=min(child.max_tree, parent.max_tree),
        deadline=min(times, default=None),
    )


def _narrow_sandbox(child: SandboxPolicy, parent: SandboxPolicy, workspace: str) -> SandboxPolicy:
    readable = (*parent.readable, *parent.writable, workspace)
    return SandboxPolicy(
        max(child.mode, parent.mode, key=lambda mode: _STRICTNESS[mode]),
        child.network and parent.network,
        tuple([path for path in child.readable if _is_inside(path, readable)]),
        tuple([path for path in child.writable if _is_inside(path, (*parent.writable, workspace))]),
        tuple(dict.fromkeys((*(join(workspace, path) for path in parent.read_only), *child.read_only))),
    )


def _is_inside(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is inside one of the folders, judged by its name. A path with `..` is not."""
    normalised = normpath(path)
    inside = [folder for folder in map(normpath, folders) if f"{normalised}/".startswith(f"{folder.rstrip('/')}/")]
    return ".." not in path.split("/") and bool(inside)
