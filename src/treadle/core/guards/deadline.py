"""Guard that ends a run at its deadline."""

from treadle.core.guards.verdict import StopVerdict
from treadle.core.state import RunState
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome


def judge(state: RunState, now: Instant) -> StopVerdict | None:
    if state.deadline is None or now < state.deadline:
        return None
    return StopVerdict(
        Outcome(
            "deadline",
            state.turn.answer_so_far,
            reason=f"The deadline of {state.agent.limits.deadline_seconds:g} s has passed.",
            next="Send its session a message to go on, or raise limits.deadline.",
        )
    )
