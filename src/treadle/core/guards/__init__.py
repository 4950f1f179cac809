"""The guards: one small module each, every one a pure function over the state, so that what they count survives
a restart. The strictest verdict wins.

`loop.judge_call` looks at each call before it runs. `ANSWER` looks at a reply that asked for no calls. `PACE`
looks at a run that is about to ask the model again. `ALWAYS` looks whatever is under way."""

from treadle.core.guards import (
    budget_hint,
    cancel,
    continuation,
    deadline,
    empty,
    loop,
    max_steps,
    output,
    phantom,
    quarantine,
    stuck,
    written_call,
)
from treadle.core.guards.verdict import Guard

ALWAYS: tuple[Guard, ...] = (cancel.judge, quarantine.judge, deadline.judge)
ANSWER: tuple[Guard, ...] = (
    empty.judge,
    continuation.judge,
    written_call.judge,
    output.judge,
    phantom.judge,
)
PACE: tuple[Guard, ...] = (stuck.judge, max_steps.judge, loop.judge_turn, budget_hint.judge)
