"""Tells the model that its steps run out, for agents that ask for it. Off by default: models have been seen to
give up early when told."""

from treadle.core.guards.verdict import Warn
from treadle.core.state import RunState
from treadle.domain.events import BudgetHint
from treadle.domain.identity import Instant

PERCENTS = (90, 70)


def judge(state: RunState, now: Instant) -> Warn | None:
    limit = state.agent.limits.max_steps
    if not state.agent.budget_hints or limit is None:
        return None
    used = state.step.number
    for percent in PERCENTS:
        if used * 100 >= limit * percent and state.hinted_percent < percent:
            return Warn((BudgetHint(percent, f"{used} of {limit} steps are used. Come to a close in time."),))
    return None
