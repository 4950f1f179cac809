"""Which function changes the state for which type of event."""

from collections.abc import Callable
from typing import Any, TypeVar

from treadle.core.state import RunState
from treadle.domain.events import EventData

Data = TypeVar("Data", bound=EventData)
HANDLERS: dict[type[EventData], Callable[[RunState, Any], None]] = {}


def on(kind: type[Data]) -> Callable[[Callable[[RunState, Data], None]], Callable[[RunState, Data], None]]:
    """What an event of this kind changes."""

    def register(change: Callable[[RunState, Data], None]) -> Callable[[RunState, Data], None]:
        HANDLERS[kind] = change
        return change

    return register
