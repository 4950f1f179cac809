"""What the model sees: a projection of the journal that only ever grows at its end.

Before the conversation stands the preamble, built once from what the run started with. The conversation is the
transcript, whose messages keep the bytes they were encoded to."""

import msgspec

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, estimate_message, estimate_text, estimate_tool
from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec, ModelSettings
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.domain.tools import ToolSpec
from treadle.ports.model import ModelRequest, Preamble

MAX_REPLY_TOKENS = 8192
MAX_REASONED_REPLY_TOKENS = 32_768
"""Tokens, for a model of which nothing is known and an agent that sets no limit: without reasoning, and with it."""


RESULT_SHARE = 0.25
"""Of what is left of the context, so much may go to the results of one turn."""
MIN_RESULT_CHARACTERS = 4096
MAX_RESULT_CHARACTERS = 64 * 1024
"""Characters of one result: however full the context is, and however empty."""


def set_preamble(state: RunState, tools: tuple[ToolSpec, ...], recalled: str = "") -> None:
    """Settle what stands before the conversation."""
    state.preamble = make_preamble(state.agent, tools, (state.guidance, *state.sections, state.notes, recalled))
    state.tokens.before = estimate_preamble(state.preamble)


def make_preamble(agent: AgentSpec, tools: tuple[ToolSpec, ...], more: tuple[str, ...] = ()) -> Preamble:
    """Instructions and tools: the part of every request of a run that never changes. The persona comes first, then
    the guidance on the tools, the house rules, the skills, the notes of the workspace; last how to answer."""
    sections = [agent.persona.strip(), *more]
    if agent.output is not None:
        schema = msgspec.json.encode(agent.output, order="sorted").decode()
        sections.append(
            "Your final answer must be one JSON value, without any other text or code fence, "
            f"that fits this JSON Schema:\n{schema}"
        )
    if agent.loop.final_marker is not None:
        sections.append(f"When you are done, end your answer with {agent.loop.final_marker}")
    return Preamble("\n\n".join(section for section in sections if section), tools)


def estimate_preamble(before: Preamble) -> int:
    """A guess at the tokens of what stands before the conversation."""
    return estimate_text(before.system) + sum(estimate_tool(tool) for tool in before.tools)


def project(state: RunState, tools_offered: bool, profile: Profile) -> ModelRequest:
    """The request to send next. Costs the same however long the conversation is."""
    assert state.model is not None, "a run that asks has resolved its model"
    return ModelRequest(
        model=state.model.model,
        preamble=state.preamble,
        conversation=state.transcript.conversation,
        settings=effective_settings(state),
        tool_choice="auto" if tools_offered else "none",
        provider=state.model.provider,
        profile=profile,
        plain=state.plain,
        filled=state.filled and not state.plain,
        aside=state.aside,
    )


def effective_settings(state: RunState) -> ModelSettings:
    """What is asked of the model: what the agent says, with replies no longer than the model has accepted."""
    settings, longest = state.agent.model_settings, state.longest_reply
    if longest is None or (settings.max_tokens is not None and settings.max_tokens <= longest):
        return settings
    return msgspec.structs.replace(settings, max_tokens=longest)


def estimate_input(state: RunState) -> int:
    """Tokens of the request to send next: what the provider counted last, and a guess at what came since."""
    guessed = state.transcript.tokens
    for message in state.inbox:
        guessed += estimate_message(message)
    return state.tokens.estimate(guessed)


def max_cost(sent_tokens: int, settings: ModelSettings, profile: Profile) -> float | None:
    """The most dollars that a call may cost: all that is sent, and the longest reply. None: no price is known."""
    if profile.prices is None:
        return 0.0 if profile.local else None
    longest = max_reply_tokens(settings, profile)
    dear = (profile.prices.cache_write or 0.0) > profile.prices.input  # all of it may be written to a cache
    return profile.cost(Usage(sent_tokens, longest, cache_write_tokens=sent_tokens if dear else 0))


def max_reply_tokens(settings: ModelSettings, profile: Profile) -> int:
    """The most tokens that a reply is taken to have."""
    unknown = MAX_REASONED_REPLY_TOKENS if settings.reasoning else MAX_REPLY_TOKENS
    return settings.max_tokens or profile.max_output or unknown


def max_result_characters(state: RunState) -> int:
    """Characters that one result of this turn may have: a share of what is left of the context."""
    left = max(0, state.window - estimate_input(state)) * CHARACTERS_PER_TOKEN
    fair = int(left * RESULT_SHARE) // max(1, len(state.calls))
    return max(MIN_RESULT_CHARACTERS, min(MAX_RESULT_CHARACTERS, fair))
