"""Guard that tells the model that its steps are running out, for agents that ask for it. It is off by default,
since models have been seen to give up early when told."""

from treadle.core.guards.verdict import WarnModel
from treadle.core.state import RunState
from treadle.domain.events import BudgetHint
from treadle.domain.ids import Instant

PERCENTS = (90, 70)


def judge(state: RunState, now: Instant) -> WarnModel | None:
    if not state.agent.budget_hints:
        return None
    limit, used = _count_steps(state)
    if limit is None:
        return None
    for percent in PERCENTS:
        if used * 100 >= limit * percent and state.guards.hinted_percent < percent:
            note = f"{used} of {limit} steps are used. Finish in time."
            return WarnModel((BudgetHint(percent, note),))
    return None


def _count_steps(state: RunState) -> tuple[int | None, int]:
    """Return the limit and the number of used steps, of the run or of the tree that it shares them with, as far as
    it knows."""
    shared = [tree.steps for tree in state.tree.ceilings if tree.steps is not None]
    if not shared:
        return state.agent.limits.max_steps, state.step.number
    before = 0 if state.lineage is None else state.lineage.steps_before
    return min(shared), before + state.steps_of_tree
