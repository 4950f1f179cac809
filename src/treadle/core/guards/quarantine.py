"""Guard that ends a run whose workers died several times without progress: it probably kills them."""

from treadle.core.guards.verdict import StopVerdict
from treadle.core.state import RunState
from treadle.domain.events import RunQuarantined
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome


def judge(state: RunState, now: Instant) -> StopVerdict | None:
    if not state.guards.suspicion.is_culprit:
        return None
    deaths = state.guards.suspicion.total
    return StopVerdict(
        Outcome(
            "quarantined",
            state.turn.answer_so_far,
            reason=f"The worker died {deaths} times in a row while it executed this run, without progress.",
            next="See what its last step did (treadle runs events), fix that, then send its session a message.",
        ),
        (RunQuarantined(deaths),),
    )
