"""Guard that ends a run at its maximum number of steps."""

from treadle.core.guards.verdict import StopVerdict
from treadle.core.state import RunState
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome


def judge(state: RunState, now: Instant) -> StopVerdict | None:
    limit = state.agent.limits.max_steps
    if limit is None or state.step.is_open or state.step.number < limit:
        return None
    return StopVerdict(
        Outcome(
            "max_steps",
            state.turn.answer_so_far,
            reason=f"All {limit} steps are used and the task is not done.",
            next="Send its session a message to go on, or raise limits.max_steps.",
        )
    )
