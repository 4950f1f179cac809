"""Guard against replies with no text and no call: one note to the model, then the end. A refusal without text, or
of calls, ends the run at once."""

from treadle.core.guards.verdict import StopVerdict, WarnModel
from treadle.core.state import RunState, has_text
from treadle.domain.events import EmptyTurn
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

MAX_EMPTY_TURNS = 2


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    reply = state.turn.reply
    if reply is None or reply.stop == "interrupted" or state.turn.calls:
        return None
    if reply.stop == "refusal" and reply.dropped_calls:
        names = ", ".join(dict.fromkeys(reply.dropped_calls))
        reason = f"The provider filtered the reply, so its tool calls ({names}) were not run."
        return StopVerdict(
            Outcome("model_error", state.turn.answer_so_far, reason, "Ask in other words, or try another model.")
        )
    if has_text(reply) or reply.stop == "max_tokens":  # a cut reply is continued
        return None
    if reply.stop == "refusal":
        refused = "The model refused to answer and gave no reason."
        return StopVerdict(Outcome("model_error", reason=refused, next="Ask in other words, or try another model."))
    turns = state.guards.empty_turns + 1
    if turns >= MAX_EMPTY_TURNS:
        return StopVerdict(
            Outcome(
                "empty",
                reason=f"The model said nothing {turns} times in a row.",
                next="Ask again in other words, or try another model.",
            )
        )
    return WarnModel((EmptyTurn(turns, "Your last reply was empty. Go on with the task, or say what you found."),))
