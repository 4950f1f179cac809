"""A run that was taken over again and again and never got on: it may well be what kills its workers."""

from treadle.core.guards.verdict import Stop
from treadle.core.state import RunState
from treadle.domain.events import RunQuarantined
from treadle.domain.identity import Instant
from treadle.domain.runs import Outcome

RECOVERIES = 3


def judge(state: RunState, now: Instant) -> Stop | None:
    if state.recoveries <= RECOVERIES:
        return None
    return Stop(
        Outcome(
            "quarantined",
            state.answer_so_far,
            reason=f"The worker died {state.recoveries} times in a row without the run getting on.",
            next="See what its last step did (treadle runs events), mend that, then send its session a message.",
        ),
        (RunQuarantined(state.recoveries),),
    )
