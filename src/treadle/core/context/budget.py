"""Making room in the context before the model is asked: what is done about a conversation that has grown too long.

At a share of the window the middle of it is folded into a summary. Where it would not fit at all, or a provider has
said that it does not, one way after the other is tried, each at most once until the model has replied: long results
are cut, then the results of old turns; then a summary, then a shorter rest beside it; and where nobody could sum it
up, old turns are left out. A way that would free nothing is passed over."""

from typing import Final

from treadle.core.context.compaction import KEPT_SHARES, find_kept, find_recent, find_span, max_summary_tokens
from treadle.core.context.projection import estimate_input
from treadle.core.context.tokens import CHARACTERS_PER_TOKEN
from treadle.core.context.truncation import MARK_CHARACTERS, find_long_results
from treadle.core.state import RoomStage, RunState
from treadle.core.steps import Compact, TruncateResults
from treadle.domain.events import (
    CompactionFailed,
    CompactStage,
    CompactTrigger,
    ContextTrimmed,
    TrimStage,
)
from treadle.domain.runs import Outcome

STAGES: Final[tuple[RoomStage, ...]] = ("shrink", "trim", "compact", "harder", "drop")
RETRY_GROWTH_SHARE = 0.1
"""The share of the window by which a conversation must grow before a summary is tried again that failed."""
DEFAULT_REPLY_TOKENS = 4096
"""Tokens that are left for the reply, where the agent does not say; at most an eighth of the window."""
LONG_RESULT_SHARE = 0.05
"""Of the window: what is longer is a long result."""
MIN_LONG_RESULT_CHARACTERS = 1000
TRIMMED_RESULT_CHARACTERS = 200
"""Characters that are left of the result of an old turn."""
LARGE_SHARE, LARGE = 0.25, 16_000
"""Of the window, and tokens: from either on, a conversation may be the reason of an unclear refusal."""
KEPT_HISTORY_SHARE = 0.75
"""Of the most messages: what is left when there were too many, so that the prompt stays the same for a while."""


def max_input_tokens(state: RunState) -> int:
    """Tokens that a request may have, so that the reply has room too."""
    reply = min(state.agent.model_settings.max_tokens or DEFAULT_REPLY_TOKENS, state.window // 8)
    return state.window - reply


def make_room(state: RunState, size: int) -> Compact | TruncateResults | None:
    """What is to be done before the model is asked for that many tokens, if anything."""
    limit = state.agent.limits.history_messages
    if limit is not None and "history" not in state.spent and (step := _plan_history_limit(state, limit)):
        return step
    refused = state.failure is not None and state.failure.compact
    guessed = refused and state.failure is not None and state.failure.guessed
    if guessed:
        return _plan_stage(state, "compact", "overflow") if not state.spent & set(STAGES) else None
    if refused or size > max_input_tokens(state):
        for way in STAGES:
            if way not in state.spent and (step := _plan_stage(state, way, "overflow")):
                return step
        return None
    if size <= state.agent.compaction.at * state.window or state.segment.reason == "undo":
        return None
    step = None if "compact" in state.spent else plan_compaction(state, "compact", "threshold")
    return step if step is not None and _is_worth_it(state, size, step) else None


def _is_worth_it(state: RunState, size: int, step: Compact) -> bool:
    """Whether there would be room for a while: else the same would be done again at once."""
    gone = sum(state.transcript.sizes[at] for at in range(step.first, step.last) if at not in step.kept)
    left = size - gone * state.tokens.rate + max_summary_tokens(state.window)
    return left <= state.agent.compaction.at * state.window


def may_be_too_long(state: RunState) -> bool:
    """Whether a refusal without a reason may be about the length, so that a shorter conversation is worth a try."""
    is_large = estimate_input(state) >= min(LARGE, LARGE_SHARE * state.window)
    return is_large and not state.shortened and len(state.transcript.messages) > 2


def overflows(state: RunState, size: int) -> bool:
    """Whether a request of that many tokens cannot be sent, as far as we can tell. As long as the provider has not
    shown how it counts, we can tell little: then it is asked."""
    if size <= state.window:
        return False
    return state.tokens.reports > 0 and len(state.transcript.messages) > 1


def make_overflow(state: RunState, reason: str = "") -> Outcome:
    """The end of a run whose conversation does not fit, whatever is done."""
    model = "the model" if state.model is None else f"{state.model.provider}/{state.model.model}"
    size = f"about {estimate_input(state)} tokens where {model} takes {state.window}"
    return Outcome(
        "context_overflow",
        state.answer_so_far,
        reason=reason or f"The conversation has {size}, and nothing more can be left out.",
        next="Send /compact to have it summarised, or /reset to go on with an empty conversation in the same "
        "session; or choose a model with a larger context window.",
    )


def _plan_stage(state: RunState, way: RoomStage, trigger: CompactTrigger) -> Compact | TruncateResults | None:
    messages, sizes = state.transcript.messages, state.transcript.sizes
    recent = find_recent(messages, sizes, int(KEPT_SHARES["compact"] * state.window / state.tokens.rate), 0)
    match way:
        case "compact" | "harder":
            return plan_compaction(state, way, trigger)
        case "shrink":
            longest = max(MIN_LONG_RESULT_CHARACTERS, int(state.window * LONG_RESULT_SHARE * CHARACTERS_PER_TOKEN))
            return _plan_truncation(state, way, longest, len(messages))
        case "trim":
            return _plan_truncation(state, way, TRIMMED_RESULT_CHARACTERS, recent)
        case "drop" if isinstance(state.compaction, CompactionFailed):  # nobody could sum it up
            return _plan_removal(state, way, recent)
        case _:
            return None


def plan_compaction(state: RunState, stage: CompactStage, trigger: CompactTrigger) -> Compact | None:
    if isinstance(state.compaction, CompactionFailed):
        grown = (state.transcript.tokens - state.failed_at) * state.tokens.rate
        if grown < RETRY_GROWTH_SHARE * state.window:
            return None  # whoever was to write it has just failed
    span = find_span(state, stage, trigger)
    return None if span is None else Compact(stage, trigger, *span, find_kept(state, *span))


def _plan_truncation(state: RunState, stage: TrimStage, longest: int, before: int) -> TruncateResults | None:
    """Cut the results of the messages before this one."""
    found = list(find_long_results(state.transcript.messages[:before], longest))
    if not found:
        return None
    characters = sum(len(result.content) - longest - MARK_CHARACTERS for result in found)
    freed = int(characters / CHARACTERS_PER_TOKEN * state.tokens.rate)
    calls = tuple([result.call_id for result in found])
    return TruncateResults(ContextTrimmed(stage, freed, results=calls, longest=longest), tuple(found))


def _plan_history_limit(state: RunState, limit: int) -> TruncateResults | None:
    """Leave out the oldest messages of a conversation that has more than the agent wants."""
    messages = state.transcript.messages
    if len(messages) <= limit:
        return None
    last = len(messages) - max(1, int(limit * KEPT_HISTORY_SHARE))
    while last and messages[last].role == "tool":
        last -= 1  # results go with their calls
    return _plan_removal(state, "history", last)


def _plan_removal(state: RunState, stage: TrimStage, last: int) -> TruncateResults | None:
    """Leave out the messages before this one, but for what must stay."""
    messages, sizes = state.transcript.messages, state.transcript.sizes
    kept = tuple([at for at in range(last) if messages[at].mark is not None or messages[at] in state.tasks])
    freed = sum(sizes[index] for index in range(last) if index not in kept)
    if not freed:
        return None
    return TruncateResults(ContextTrimmed(stage, int(freed * state.tokens.rate), dropped=(0, last), kept=kept))
