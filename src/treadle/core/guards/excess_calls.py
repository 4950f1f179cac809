"""Guard against replies with too many tool calls: the excess was dropped as it arrived, and the model is told
once."""

from treadle.core.guards.verdict import WarnModel
from treadle.core.state import RunState
from treadle.domain.events import CallsDropped
from treadle.domain.ids import Instant

MAKE_FEWER = "Read the results of the others, then make the calls that are still needed."


def judge(state: RunState, now: Instant) -> WarnModel | None:
    reply = state.turn.reply
    if reply is None or not reply.excess_calls:
        return None
    limit, dropped = state.agent.limits.max_calls, reply.excess_calls
    count = limit + dropped
    note = (
        f"A reply may have at most {limit} tool calls, and yours had {count}. "
        f"The last {dropped} were dropped and not run. {MAKE_FEWER}"
    )
    return WarnModel((CallsDropped(state.step.number, dropped, limit, note),))
