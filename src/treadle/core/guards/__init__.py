"""The guards: one small module each, and every guard a pure function of the state, so that its counts survive a
restart. The strictest verdict wins.

`loop.judge_call` checks each call before it runs. `ANSWER` checks a reply without calls. `PACE` checks a run that
is about to call the model again. `ALWAYS` checks at every decision."""

from treadle.core.guards import (
    budget_hint,
    cancel,
    continuation,
    deadline,
    empty,
    excess_calls,
    loop,
    max_steps,
    output,
    phantom,
    quarantine,
    refused,
    stuck,
    written_call,
)
from treadle.core.guards.output import reject as reject_answer
from treadle.core.guards.verdict import Guard

__all__ = ["ALWAYS", "ANSWER", "PACE", "reject_answer"]

ALWAYS: tuple[Guard, ...] = (cancel.judge, quarantine.judge, deadline.judge)
ANSWER: tuple[Guard, ...] = (
    refused.judge,
    empty.judge,
    continuation.judge,
    written_call.judge,
    output.judge,
    phantom.judge,
)
PACE: tuple[Guard, ...] = (
    stuck.judge,
    max_steps.judge,
    excess_calls.judge,
    loop.judge_turn,
    budget_hint.judge,
)
