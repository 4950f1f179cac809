"""A reply with no text and no call: one nudge, then the end."""

from treadle.core.guards.verdict import Stop, Warn
from treadle.core.state import RunState
from treadle.domain.events import EmptyTurn
from treadle.domain.identity import Instant
from treadle.domain.messages import Text
from treadle.domain.runs import Outcome

TURNS = 2


def judge(state: RunState, now: Instant) -> Warn | Stop | None:
    reply = state.reply
    if reply is None or reply.stop in ("interrupted", "refusal") or state.calls:
        return None
    if any(isinstance(part, Text) and part.text.strip() for part in reply.parts):
        return None
    turns = state.empty_turns + 1
    if turns >= TURNS:
        return Stop(
            Outcome(
                "empty",
                reason=f"The model said nothing {turns} times in a row.",
                next="Ask again in other words, or try another model.",
            )
        )
    return Warn((EmptyTurn(turns, "Your last reply was empty. Go on with the task, or say what you found."),))
