"""Guard that ends a cancelled run."""

from treadle.core.guards.verdict import StopVerdict
from treadle.core.state import RunState
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome


def judge(state: RunState, now: Instant) -> StopVerdict | None:
    if state.cancelled is None:
        return None
    return StopVerdict(
        Outcome(
            "cancelled",
            state.turn.answer_so_far,
            reason=f"The run was cancelled: {state.cancelled}",
            next="Send its session another message to go on from here.",
        )
    )
