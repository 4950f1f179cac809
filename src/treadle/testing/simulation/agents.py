"""The agents of a simulated world: with a small window, with limits, with child runs, and judges."""

import msgspec

from treadle.domain.agents import AgentSpec, Errors, Limits, ModelSettings, Quality, Retry
from treadle.domain.errors import UnknownAgent
from treadle.domain.ids import AgentId
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.quotas import Quotas

JUDGES = "You judge what others have done."
"""The persona of the judge."""
ALONE = ("look", "watch", "post", "sign")

CLIENT_WAIT_SECONDS = 8.0
"""How long the agents wait for their clients."""

AGENT = AgentSpec(
    "simulated",
    "simulated",
    tools=("*",),
    limits=Limits(client_tool_wait=CLIENT_WAIT_SECONDS),
    retry=Retry(attempts=3, base_ms=100),
    approvals=ApprovalRules(expires=20.0, rules=(ApprovalRule("sign", "ask"),)),
)
CRAMPED = msgspec.structs.replace(AGENT, limits=Limits(context_window=700, client_tool_wait=CLIENT_WAIT_SECONDS))
"""An agent whose conversations outgrow the window, so that they are truncated and summarised."""
BOUND = msgspec.structs.replace(
    AGENT,
    limits=Limits(
        cost=0.006,
        context_window=700,
        max_steps=8,
        max_children=2,
        max_tree=4,
        client_tool_wait=CLIENT_WAIT_SECONDS,
    ),
    budget="shared",
    model_settings=ModelSettings(max_tokens=200),
    quotas=Quotas(max_llm_tokens_per_hour=3000, max_tool_calls_per_minute=6),
)
"""An agent that reaches its limits and also pays for its summaries. Its child runs share the limits."""
JUDGED = msgspec.structs.replace(
    AGENT,
    limits=Limits(max_steps=5, client_tool_wait=CLIENT_WAIT_SECONDS),
    budget="shared",
    quality=Quality("judge", 0.5, 1),
    errors=Errors("judge"),
    approvals=ApprovalRules(expires=4.0, on_expiry="end", rules=(ApprovalRule("sign", "ask"),)),
)
"""An agent whose work is judged, rightly or wrongly, and may be sent back once. It hardly waits for people."""
SHALLOW = msgspec.structs.replace(
    AGENT,
    limits=Limits(max_depth=2, max_children=1, max_tree=3, client_tool_wait=CLIENT_WAIT_SECONDS),
    approvals=ApprovalRules(expires=20.0, rules=(ApprovalRule("sign", "ask"), ApprovalRule("agent_*", "ask"))),
)
"""An agent that starts few child runs, one after the other, each with an approval."""
HURRIED = msgspec.structs.replace(
    AGENT, limits=Limits(deadline=5.0, client_tool_wait=CLIENT_WAIT_SECONDS), errors=Errors("judge")
)
"""An agent whose deadline passes while child runs still work for it."""

KNOWN = {
    agent.name: agent
    for agent in (
        msgspec.structs.replace(AGENT, name="helper", tools=ALONE),
        msgspec.structs.replace(JUDGED, name="leader", limits=Limits(max_children=2, max_steps=6)),
        msgspec.structs.replace(BOUND, name="poor", quotas=Quotas(), limits=Limits(cost=0.004, max_steps=20)),
        AgentSpec("judge", "simulated", persona=JUDGES, limits=Limits(max_steps=3), retry=Retry(1, 100)),
    )
}
"""The agents that others can delegate to, by name."""


class SimulatedAgents:
    """Implements `ports.agents.Agents`."""

    async def get_agent(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        if name not in KNOWN:
            raise UnknownAgent(f"No agent is called `{name}`.")
        return KNOWN[name]

    async def version(self, name: str) -> int | None:
        return None

    async def identity(self, name: str) -> AgentId:
        return AgentId(f"agt_{name}")
