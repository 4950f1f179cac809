"""What a small model gets of an agent: with many tools and a long prompt it answers slowly and mostly wrong."""

import msgspec

from treadle.domain.agents import AgentSpec, SmallModels
from treadle.domain.models import Profile


def fit_agent(agent: AgentSpec, profile: Profile) -> AgentSpec:
    """Return the agent for a model: with what `small_models` names if the model is small."""
    small = agent.small_models
    if not profile.is_small or small == SmallModels():
        return agent
    recall = agent.memory.recall if small.recall is None else min(small.recall, agent.memory.recall)
    return msgspec.structs.replace(
        agent,
        tools=agent.tools if small.tools is None else small.tools,
        skills=() if small.tools == () else agent.skills,
        persona=agent.persona if small.persona is None else small.persona,
        memory=msgspec.structs.replace(agent.memory, recall=recall),
    )
