"""The model request, projected from the state of a run. It only ever grows at its end.

The preamble comes first and is built once from what the run started with. The transcript follows, and its messages
keep their encoded bytes."""

import msgspec

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN, estimate_message, estimate_text, estimate_tool
from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec, ModelSettings
from treadle.domain.call_settings import fit_settings
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.domain.tools import AUTO, ToolChoice, ToolSpec
from treadle.ports.model import ModelRequest, Preamble

MAX_REPLY_TOKENS = 8192
MAX_REASONED_REPLY_TOKENS = 32_768
"""Assumed maximum reply, without and with reasoning, if neither the model nor the agent sets one."""


NO_TOOLS = ToolChoice("none")
RESULT_SHARE = 0.25
"""Share of the remaining context window for the results of one turn."""
MIN_RESULT_CHARACTERS = 4096
MAX_RESULT_CHARACTERS = 64 * 1024
"""Bounds for one result, however full or empty the context window is."""


def set_preamble(state: RunState, tools: tuple[ToolSpec, ...], recalled: str = "") -> None:
    """Build the preamble of a run, without hidden tools, and estimate its size."""
    if any(tool.hidden for tool in tools):
        tools = tuple([tool for tool in tools if not tool.hidden])
    state.prompt.preamble = make_preamble(
        state.agent, tools, (state.prompt.guidance, *state.prompt.sections, state.prompt.notes, recalled)
    )
    state.context.tokens.before = estimate_preamble(state.prompt.preamble)


def make_preamble(
    agent: AgentSpec, tools: tuple[ToolSpec, ...], sections_after_persona: tuple[str, ...] = ()
) -> Preamble:
    """Return the instructions and tools that begin every request of a run.

    The order is: persona, guidance on tools, rules, skills, notes of the workspace, and how to answer."""
    sections = [agent.persona.strip(), *sections_after_persona]
    if agent.output is not None:
        schema = msgspec.json.encode(agent.output, order="sorted").decode()
        sections.append(
            "Your final answer must be one JSON value, without any other text or code fence, "
            f"that fits this JSON Schema:\n{schema}"
        )
    if agent.loop.final_marker is not None:
        sections.append(f"When you are done, end your answer with {agent.loop.final_marker}")
    # With a marker at its end, an answer is not the JSON value alone, to which a provider would constrain it.
    output = agent.output if agent.loop.final_marker is None else None
    return Preamble("\n\n".join(section for section in sections if section), tools, output)


def estimate_preamble(preamble: Preamble) -> int:
    """Return the estimated size of the preamble in tokens."""
    return estimate_text(preamble.system) + sum(estimate_tool(tool) for tool in preamble.tools)


def project(state: RunState, tools_offered: bool, profile: Profile) -> ModelRequest:
    """Return the next request. Its cost does not depend on the length of the transcript."""
    assert state.model is not None, "a run that asks has resolved its model"
    choice = _choose_tools(state, tools_offered)
    return ModelRequest(
        model=state.model.model,
        preamble=state.prompt.preamble,
        conversation=state.transcript.conversation,
        settings=fit_settings(effective_settings(state), state.model.api_mode, profile),
        tool_choice=choice.mode,
        named_tool=choice.tool,
        provider=state.model.provider,
        profile=profile,
        plain=state.attempts.plain,
        filled=state.attempts.filled and not state.attempts.plain,
        constrained=state.prompt.preamble.output is not None and _may_constrain(state, tools_offered, profile),
        max_calls=state.agent.limits.max_calls,
    )


def _choose_tools(state: RunState, tools_offered: bool) -> ToolChoice:
    """Return the choice for the next request. That a tool must be called is for the first step after the message or
    the results of the client: a model that must call one in every step never answers."""
    if not tools_offered:
        return NO_TOOLS
    wanted = None if state.tree.queued is None else state.tree.queued.tool_choice
    later = state.review.next_choice
    if later is not None and later[0] == state.step.number:
        wanted = later[1]
    elif wanted is None or (wanted.mode == "required" and state.step.number > 1):
        return AUTO
    if not wanted.tool:
        return wanted
    names = {tool.client or tool.name: tool.name for tool in state.prompt.preamble.tools}
    return ToolChoice(wanted.mode, names[wanted.tool]) if wanted.tool in names else AUTO


def _may_constrain(state: RunState, tools_offered: bool, profile: Profile) -> bool:
    """Return whether the provider may constrain the reply by the output schema. The rest of an answer that was cut
    does not fit the schema, and neither does a tool call that the model has to write as text."""
    when = profile.structured_output
    if when == "never" or state.attempts.unconstrained or state.guards.continuations:
        return False
    if not (tools_offered and state.prompt.preamble.tools):
        return True
    return when == "always" and profile.tools == "native"


def effective_settings(state: RunState) -> ModelSettings:
    """Return the agent's model settings, with the reply limit that the model has accepted."""
    settings, longest = state.agent.model_settings, state.attempts.longest_reply
    if longest is None or (settings.max_tokens is not None and settings.max_tokens <= longest):
        return settings
    return msgspec.structs.replace(settings, max_tokens=longest)


def estimate_input(state: RunState) -> int:
    """Return the estimated size of the next request: the provider's last count plus an estimate of what was added
    since."""
    estimate = state.transcript.tokens
    for message in state.turn.inbox:
        estimate += estimate_message(message)
    return state.context.tokens.estimate(estimate)


def max_cost(sent_tokens: int, settings: ModelSettings, profile: Profile) -> float | None:
    """Return the maximum cost of a call in dollars: everything sent, and the longest reply. Return None if no
    price is known."""
    if profile.prices is None:
        return 0.0 if profile.local else None
    longest = max_reply_tokens(settings, profile)
    charges_cache_writes = (
        profile.prices.cache_write or 0.0
    ) > profile.prices.input  # all of it may be written to a cache
    return profile.cost(Usage(sent_tokens, longest, cache_write_tokens=sent_tokens if charges_cache_writes else 0))


def max_reply_tokens(settings: ModelSettings, profile: Profile) -> int:
    """Return the maximum number of tokens that a reply is assumed to have."""
    unknown = MAX_REASONED_REPLY_TOKENS if settings.reasoning else MAX_REPLY_TOKENS
    return settings.max_tokens or profile.max_output or unknown


def max_result_characters(state: RunState) -> int:
    """Return the maximum number of characters for one result of this turn: a share of the remaining context
    window."""
    characters_left = max(0, state.window - estimate_input(state)) * CHARACTERS_PER_TOKEN
    share = int(characters_left * RESULT_SHARE) // max(1, len(state.turn.calls))
    return max(MIN_RESULT_CHARACTERS, min(MAX_RESULT_CHARACTERS, share))
