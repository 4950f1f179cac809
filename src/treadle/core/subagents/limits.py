"""What a run under another is given. Never more than its parent has: not a tool, a folder, the network, a model or
a level further down; and the rules, the secrets and the ceilings of its parent are its own too."""

from posixpath import normpath

import msgspec

from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec, Errors, Limits, Quality
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId
from treadle.domain.lineage import JUDGES, Ancestor, Lineage, Order, Role, TreeCeiling
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.domain.quotas import NO_QUOTAS, Quotas
from treadle.domain.schedules import Heartbeat

_STRICTNESS: dict[SandboxMode, int] = {"off": 0, "auto": 1, "required": 2}


def make_lineage(parent: RunState, call_id: str, role: Role) -> Lineage:
    above = parent.lineage
    return Lineage(
        parent.root,
        1 if above is None else above.depth + 1,
        call_id,
        role,
        (*(() if above is None else above.agents), parent.agent.name),
        () if role in JUDGES else tuple(parent.tools),
        (*(() if above is None else above.approvals), parent.agent.approvals),
        parent.trees,
        _inherited_quotas(parent),
        (0 if above is None else above.steps_before) + parent.steps_of_tree,
        (*(() if above is None else above.above), Ancestor(parent.origin.run_id, call_id)),
    )


def detach_lineage(lineage: Lineage, run_id: RunId) -> Lineage:
    """What holds for a fork of a run that was under others: the same. But it is under nobody, nobody hears of it,
    and what it uses is counted anew."""
    return msgspec.structs.replace(lineage, root=run_id, depth=0, ceilings=(), steps_before=0, above=())


def cap_by_ceilings(ceilings: tuple[TreeCeiling, ...], agent: AgentSpec) -> AgentSpec:
    """The agent, which may use no more by itself than any of these let it use together with others."""
    limits = agent.limits
    costs = [cost for cost in (limits.cost, *(tree.cost for tree in ceilings)) if cost is not None]
    steps = [count for count in (limits.max_steps, *(tree.steps for tree in ceilings)) if count is not None]
    most = msgspec.structs.replace(limits, cost=min(costs, default=None), max_steps=min(steps, default=None))
    return msgspec.structs.replace(agent, limits=most)


def _inherited_quotas(parent: RunState) -> tuple[tuple[str, Quotas], ...]:
    """Of the parent and of those above it, each agent once."""
    above = () if parent.lineage is None else parent.lineage.quotas
    mine = parent.agent.quotas
    known = mine == NO_QUOTAS or any(name == parent.agent.name for name, _ in above)
    return above if known else (*above, (parent.agent.name, mine))


def copy_agent(parent: AgentSpec, order: Order) -> AgentSpec:
    """Whoever asks, once more, for one task: nobody judges it, and what it does is not remembered."""
    return msgspec.structs.replace(
        parent,
        persona=parent.persona if order.instructions is None else order.instructions,
        output=None,
        limits=msgspec.structs.replace(parent.limits, cost=None, deadline=None),
        memory=msgspec.structs.replace(parent.memory, remember=False),
        heartbeat=Heartbeat(),
        quality=Quality(),
        errors=Errors(),
    )


def apply_order(agent: AgentSpec, parent: AgentSpec, order: Order) -> AgentSpec:
    """The agent, with the tools and the model that were asked for. Raises UsageError for a model that neither may
    ask."""
    tools = agent.tools if order.tools is None else order.tools
    if order.model is None:
        return msgspec.structs.replace(agent, tools=tools)
    for owner in (parent, agent):
        if order.model in allowed_models(owner):
            provider = owner.provider if order.model == owner.model else None
            return msgspec.structs.replace(agent, tools=tools, model=order.model, provider=provider, routing=None)
    known = ", ".join(f"`{name}`" for name in dict.fromkeys((*allowed_models(parent), *allowed_models(agent))))
    raise UsageError(f"the model `{order.model}` may not be asked; these may: {known}")


def allowed_models(agent: AgentSpec) -> tuple[str, ...]:
    """Those that an agent may ask."""
    tiers = () if agent.routing is None else tuple([tier.model for tier in agent.routing.tiers])
    summaries = () if agent.compaction.model is None else (agent.compaction.model,)
    return (agent.model, *tiers, *agent.fallbacks, *summaries)


def narrow_agent(child: AgentSpec, parent: AgentSpec, workspace: str, seconds: float | None) -> AgentSpec:
    """The agent as a child of this parent, which works in this folder. The child has so many seconds at most."""
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
    )


def _is_inside(path: str, folders: tuple[str, ...]) -> bool:
    """As far as names tell, and only where nothing in them leads elsewhere."""
    wanted = normpath(path)
    inside = [folder for folder in map(normpath, folders) if f"{wanted}/".startswith(f"{folder.rstrip('/')}/")]
    return ".." not in path.split("/") and bool(inside)
