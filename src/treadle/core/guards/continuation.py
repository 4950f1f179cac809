"""Guard that continues a reply that was cut at the model's token limit, or paused by its provider, a limited number
of times."""

from treadle.core.guards.verdict import StopVerdict, WarnModel
from treadle.core.state import RunState
from treadle.domain.events import Continuation
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

_CONTINUE = "Your last reply was cut at the token limit. Go on exactly where it stopped; repeat nothing."
_NOT_RUN = (
    "Your last reply was cut at the token limit, so none of its tool calls was run. Make them again: with shorter "
    "arguments, or in several smaller calls."
)
_PAUSED = "The provider paused your last reply. Go on exactly where it stopped; repeat nothing."
_PAUSED_NOT_RUN = "The provider paused your last reply, so none of its tool calls was run. Make them again."


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    if state.turn.reply is None or state.turn.reply.stop != "max_tokens":
        return None
    was_paused = state.turn.reply.raw_stop is not None
    limit = state.agent.limits.max_continuations
    if state.guards.continuations >= limit:
        return StopVerdict(_describe_end(state, limit, was_paused=was_paused))
    if state.turn.reply.dropped_calls:
        note = _PAUSED_NOT_RUN if was_paused else _NOT_RUN
    else:
        note = _PAUSED if was_paused else _CONTINUE
    return WarnModel((Continuation(state.guards.continuations + 1, note),))


def _describe_end(state: RunState, limit: int, *, was_paused: bool) -> Outcome:
    cause, remedy = "cut at the model's token limit", "Raise model_settings.max_tokens or limits.max_continuations"
    if was_paused:
        cause, remedy = "paused by the provider", "Raise limits.max_continuations"
    return Outcome(
        "truncated",
        state.turn.answer_so_far,
        reason=f"The answer was {cause} and {limit} continuations were not enough.",
        next=f"{remedy}, or ask for a shorter answer.",
    )
