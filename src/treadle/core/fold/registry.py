"""The handler of each type of event."""

from collections.abc import Callable
from typing import Any, TypeVar

from treadle.core.state import RunState
from treadle.domain.events import EventData

Data = TypeVar("Data", bound=EventData)
HANDLERS: dict[type[EventData], Callable[[RunState, Any], None]] = {}


def on(event_type: type[Data]) -> Callable[[Callable[[RunState, Data], None]], Callable[[RunState, Data], None]]:
    """Register the handler for this type of event."""

    def register(handler: Callable[[RunState, Data], None]) -> Callable[[RunState, Data], None]:
        HANDLERS[event_type] = handler
        return handler

    return register
