"""Guard against replies with no visible text and no call: one note to the model, then the end."""

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
    if has_text(reply) or reply.stop == "max_tokens":  # a cut reply is continued
        return None
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
