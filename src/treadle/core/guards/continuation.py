"""Guard that continues a reply that was cut at the model's token limit, a limited number of times."""

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


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    if state.turn.reply is None or state.turn.reply.stop != "max_tokens":
        return None
    limit = state.agent.limits.max_continuations
    if state.guards.continuations >= limit:
        return StopVerdict(
            Outcome(
                "truncated",
                state.turn.answer_so_far,
                reason=f"The answer was cut at the model's token limit and {limit} continuations were not enough.",
                next="Raise model_settings.max_tokens or limits.max_continuations, or ask for a shorter answer.",
            )
        )
    note = _NOT_RUN if state.turn.reply.dropped_calls else _CONTINUE
    return WarnModel((Continuation(state.guards.continuations + 1, note),))
