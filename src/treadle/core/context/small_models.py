"""What a small model gets of an agent: with many tools and a long prompt it answers slowly and mostly wrong."""

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.models import Profile


def fit_agent(agent: AgentSpec, profile: Profile) -> AgentSpec:
    """Return the agent for a model: with the tools and the persona of `small_models` if the model is small."""
    small = agent.small_models
    if not profile.is_small or (small.tools is None and small.persona is None):
        return agent
    return msgspec.structs.replace(
        agent,
        tools=agent.tools if small.tools is None else small.tools,
        skills=() if small.tools == () else agent.skills,
        persona=agent.persona if small.persona is None else small.persona,
    )
