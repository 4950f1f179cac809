"""Loading a run from its journal."""

from treadle.core.state import RunState, new_state
from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.ports.journal import Journal


async def load_run_history(run_id: RunId, journal: Journal) -> tuple[RunState, list[Event]]:
    """Return the state that a run began with and all its events. The caller folds as many events as it needs."""
    events: list[Event] = []
    while page := await journal.read(run_id, events[-1].sequence if events else 0):
        events += page
    return new_state(events[0].origin, await journal.history(run_id)), events
