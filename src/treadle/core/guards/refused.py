"""Guard that ends a run whose reply was refused by the model, or cut by a filter of its provider. What was received
is delivered, and never as a completed answer. A message that came in the meantime is answered instead."""

from treadle.core.guards.verdict import StopVerdict
from treadle.core.state import RunState
from treadle.domain.events import LlmError
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

NEXT = "Ask in other words, send /reset to start an empty conversation, or try another model."


def judge(state: RunState, now: Instant) -> StopVerdict | None:
    reply = state.turn.reply
    if reply is None or reply.stop != "refusal" or state.steer_mode is not None:
        return None
    said = f" ({reply.refusal})" if reply.refusal else ""
    received = "The text before that was received." if state.turn.answer_so_far else "Nothing was received."
    if reply.dropped_calls:
        names = ", ".join(dict.fromkeys(reply.dropped_calls))
        received += f" Its tool calls ({names}) were not run."
    reason = f"The model refused to answer, or its provider filtered the reply{said}. {received}"
    return StopVerdict(Outcome("refused", state.turn.answer_so_far, reason, NEXT))


def describe_rejection(state: RunState, failure: LlmError) -> Outcome:
    """Return the outcome of a run whose conversation a content filter of the provider rejects."""
    return Outcome("refused", state.turn.answer_so_far, failure.message, NEXT)
