"""The fold: events applied to the state, one at a time. A run changes in no other way.

Each kind of event has one function in one of these modules. Deliveries change only what waits to be considered
(the inbox, a request to stop), never what the owner's own facts change. So a delivery and a fact give the same
state in either order, and an owner that has folded its facts need not start over when it learns that something was
delivered before them."""

from collections.abc import Iterable

from treadle.core.fold import children, context, fork, guards, model_calls, run, tool_calls
from treadle.core.fold.registry import HANDLERS
from treadle.core.state import RunState
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.ids import Instant

MODULES = (run, model_calls, tool_calls, guards, context, children, fork)
"""The modules with the handlers. Importing them registers the handlers."""


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
    return state


def fold(state: RunState, data: EventData, sequence: int, at: Instant) -> None:
    """Apply one event to the state."""
    state.sequence, state.latest_at = sequence, at
    change = HANDLERS.get(type(data))
    if change is not None:  # else it is of a later version, or does not affect later decisions
        change(state, data)
