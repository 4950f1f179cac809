"""Events into state, one at a time. There is no other way for a run to change.

Each kind of event has one function in one of these modules. Deliveries touch only what waits to be considered (the
inbox, a wish to stop), never what the owner's own facts touch. So a delivery and a fact give the same state in
either order, and an owner that has folded its facts need not start over when it learns that something was delivered
before them."""

from collections.abc import Iterable

from treadle.core.fold import children, context, fork, guards, model_calls, run, tool_calls
from treadle.core.fold.model_calls import SILENT_STORED, SILENT_TEXTS
from treadle.core.fold.registry import HANDLERS
from treadle.core.state import RunState
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.ids import Instant

__all__ = ["MODULES", "SILENT_STORED", "SILENT_TEXTS", "fold", "fold_all"]

MODULES = (run, model_calls, tool_calls, guards, context, children, fork)
"""The modules whose functions make the changes: to be imported is to be known."""


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
    return state


def fold(state: RunState, data: EventData, sequence: int, at: Instant) -> None:
    """Let one more event have happened."""
    state.sequence, state.latest_at = sequence, at
    change = HANDLERS.get(type(data))
    if change is not None:  # else it was written by a later version, or is of no consequence to what comes next
        change(state, data)
