"""What the model sees: a projection of the journal that only ever grows at its end.

Before the conversation stands the preamble, built once from what the run started with. The conversation is the
transcript, whose messages keep the bytes they were encoded to."""

import msgspec

from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec
from treadle.domain.tools import ToolSpec
from treadle.ports.model import ModelRequest, Preamble


def preamble(agent: AgentSpec, tools: tuple[ToolSpec, ...]) -> Preamble:
    """Instructions and tools: the part of every request of a run that never changes."""
    sections = [agent.persona.strip()]
    if agent.output is not None:
        schema = msgspec.json.encode(agent.output, order="sorted").decode()
        sections.append(
            "Your final answer must be one JSON value, without any other text or code fence, "
            f"that fits this JSON Schema:\n{schema}"
        )
    if agent.loop.final_marker is not None:
        sections.append(f"When you are done, end your answer with {agent.loop.final_marker}")
    return Preamble("\n\n".join(section for section in sections if section), tools)


def project(state: RunState, tools_offered: bool) -> ModelRequest:
    """The request to send next. Costs the same however long the conversation is."""
    assert state.model is not None, "a run that asks has resolved its model"
    return ModelRequest(
        model=state.model.model,
        preamble=state.preamble,
        conversation=state.transcript.conversation,
        settings=state.agent.model_settings,
        tool_choice="auto" if tools_offered else "none",
    )
