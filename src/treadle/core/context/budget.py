"""The context budget: what to do before a model call when the transcript has grown too long.

At a share of the context window, the middle of the transcript is replaced by a summary. If the request would not
fit at all, or a provider has rejected it as too long, the stages are tried in order, each at most once until the
model replies: truncate long results; truncate the results of old turns; write a summary; write a summary and keep
fewer turns; and if no summary could be written, remove old turns. A stage that would free nothing is skipped."""

from typing import Final

from treadle.core.context.compaction import KEPT_SHARES, find_kept, find_recent, find_span, max_summary_tokens
from treadle.core.context.projection import estimate_input
from treadle.core.context.tokens import CHARACTERS_PER_TOKEN
from treadle.core.context.truncation import MARK_CHARACTERS, find_long_results
from treadle.core.state import RunState
from treadle.core.steps import Compact, TruncateResults
from treadle.core.sub_states import RoomStage
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
"""Share of the context window by which a transcript must grow before a failed summary is tried again."""
DEFAULT_REPLY_TOKENS = 4096
"""Tokens reserved for the reply if the agent sets no limit; at most an eighth of the context window."""
LONG_RESULT_SHARE = 0.05
"""A result that is longer than this share of the context window is a long result."""
MIN_LONG_RESULT_CHARACTERS = 1000
TRIMMED_RESULT_CHARACTERS = 200
LONG_INPUT_SHARE, LONG_INPUT_TOKENS = 0.25, 16_000
"""From this share of the context window or this many tokens on, an unclear rejection may be due to the length."""
KEPT_HISTORY_SHARE = 0.75
"""Share of the maximum number of messages that is kept when there are too many, so that the prompt stays the same
for a while."""


def max_input_tokens(state: RunState) -> int:
    """Return the maximum number of tokens of a request that leaves room for the reply."""
    reply = min(state.agent.model_settings.max_tokens or DEFAULT_REPLY_TOKENS, state.window // 8)
    return state.window - reply


def make_room(state: RunState, size: int) -> Compact | TruncateResults | None:
    """Return what to do before a request of this size is sent, or None."""
    limit = state.agent.limits.history_messages
    if (
        limit is not None
        and "history" not in state.context.stages_used
        and (step := _plan_history_limit(state, limit))
    ):
        return step
    refused = state.attempts.failure is not None and state.attempts.failure.compact
    guessed = refused and state.attempts.failure is not None and state.attempts.failure.guessed
    if guessed:
        return _plan_stage(state, "compact", "overflow") if not state.context.stages_used & set(STAGES) else None
    if refused or size > max_input_tokens(state):
        for stage in STAGES:
            if stage not in state.context.stages_used and (step := _plan_stage(state, stage, "overflow")):
                return step
        return None
    if size <= state.agent.compaction.at * state.window or state.segment.reason == "undo":
        return None
    step = None if "compact" in state.context.stages_used else plan_compaction(state, "compact", "threshold")
    return step if step is not None and _is_worth_it(state, size, step) else None


def _is_worth_it(state: RunState, size: int, step: Compact) -> bool:
    """Return whether the summary frees room for a while. If not, the next step would do the same again."""
    removed = sum(state.transcript.sizes[at] for at in range(step.first, step.last) if at not in step.kept)
    left = size - removed * state.context.tokens.rate + max_summary_tokens(state.window)
    return left <= state.agent.compaction.at * state.window


def may_be_too_long(state: RunState) -> bool:
    """Return whether a rejection without a reason may be due to the length, so that a shorter transcript is worth
    a try."""
    is_large = estimate_input(state) >= min(LONG_INPUT_TOKENS, LONG_INPUT_SHARE * state.window)
    return is_large and not state.context.has_guessed_overflow and len(state.transcript.messages) > 2


def exceeds_window(state: RunState, size: int) -> bool:
    """Return whether a request of this size cannot be sent.

    Until the provider has reported a count, the estimate is not reliable and the request is sent."""
    if size <= state.window:
        return False
    return state.context.tokens.reports > 0 and len(state.transcript.messages) > 1


def make_overflow(state: RunState, reason: str = "") -> Outcome:
    """Return the outcome of a run whose transcript cannot be made to fit."""
    model = "the model" if state.model is None else f"{state.model.provider}/{state.model.model}"
    size = f"about {estimate_input(state)} tokens where {model} takes {state.window}"
    return Outcome(
        "context_overflow",
        state.turn.answer_so_far,
        reason=reason or f"The conversation has {size}, and nothing more can be left out.",
        next="Send /compact to have it summarised, or /reset to go on with an empty conversation in the same "
        "session; or choose a model with a larger context window.",
    )


def _plan_stage(state: RunState, stage: RoomStage, trigger: CompactTrigger) -> Compact | TruncateResults | None:
    messages, sizes = state.transcript.messages, state.transcript.sizes
    recent = find_recent(messages, sizes, int(KEPT_SHARES["compact"] * state.window / state.context.tokens.rate), 0)
    match stage:
        case "compact" | "harder":
            return plan_compaction(state, stage, trigger)
        case "shrink":
            max_characters = max(
                MIN_LONG_RESULT_CHARACTERS, int(state.window * LONG_RESULT_SHARE * CHARACTERS_PER_TOKEN)
            )
            return _plan_truncation(state, stage, max_characters, len(messages))
        case "trim":
            return _plan_truncation(state, stage, TRIMMED_RESULT_CHARACTERS, recent)
        case "drop" if isinstance(state.context.compaction, CompactionFailed):  # no summary could be written
            return _plan_removal(state, stage, recent)
        case _:
            return None


def plan_compaction(state: RunState, stage: CompactStage, trigger: CompactTrigger) -> Compact | None:
    if isinstance(state.context.compaction, CompactionFailed):
        grown = (state.transcript.tokens - state.context.failed_at) * state.context.tokens.rate
        if grown < RETRY_GROWTH_SHARE * state.window:
            return None  # the writer has just failed
    span = find_span(state, stage, trigger)
    return None if span is None else Compact(stage, trigger, *span, find_kept(state, *span))


def _plan_truncation(state: RunState, stage: TrimStage, max_characters: int, before: int) -> TruncateResults | None:
    """Truncate the results in the messages before this index."""
    results = list(find_long_results(state.transcript.messages[:before], max_characters))
    if not results:
        return None
    characters = sum(len(result.content) - max_characters - MARK_CHARACTERS for result in results)
    freed = int(characters / CHARACTERS_PER_TOKEN * state.context.tokens.rate)
    calls = tuple([result.call_id for result in results])
    return TruncateResults(ContextTrimmed(stage, freed, results=calls, longest=max_characters), tuple(results))


def _plan_history_limit(state: RunState, limit: int) -> TruncateResults | None:
    """Remove the oldest messages if there are more than the agent allows."""
    messages = state.transcript.messages
    if len(messages) <= limit:
        return None
    last = len(messages) - max(1, int(limit * KEPT_HISTORY_SHARE))
    while last and messages[last].role == "tool":
        last -= 1  # results stay with their calls
    return _plan_removal(state, "history", last)


def _plan_removal(state: RunState, stage: TrimStage, last: int) -> TruncateResults | None:
    """Remove the messages before this index, except those that must stay."""
    messages, sizes = state.transcript.messages, state.transcript.sizes
    kept = tuple([at for at in range(last) if messages[at].mark is not None or messages[at] in state.context.tasks])
    freed = sum(sizes[index] for index in range(last) if index not in kept)
    if not freed:
        return None
    return TruncateResults(
        ContextTrimmed(stage, int(freed * state.context.tokens.rate), dropped=(0, last), kept=kept)
    )
