"""How types of events are defined: a name, its data, whether it is kept, its stream."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

Stream = Literal["run", "agent", "system"]


class EventData(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is particular to one type of event."""


class EventType(NamedTuple):
    name: str
    data: type[EventData]
    durable: bool
    stream: Stream


VOCABULARY: dict[str, EventType] = {}
"""Every type by its name, in the order in which they are defined."""

NAMES: dict[type[EventData], str] = {}

_Data = TypeVar("_Data", bound=type[EventData])


def _define(name: str, stream: Stream, durable: bool) -> Callable[[_Data], _Data]:
    def define(data: _Data) -> _Data:
        VOCABULARY[name] = EventType(name, data, durable, stream)
        NAMES[data] = name
        return data

    return define


def durable(name: str, stream: Stream = "run") -> Callable[[_Data], _Data]:
    """Name a type of event that is committed before anyone sees it."""
    return _define(name, stream, durable=True)


def live(name: str, stream: Stream = "run") -> Callable[[_Data], _Data]:
    """Name a type of event that is seen at once and never stored."""
    return _define(name, stream, durable=False)


class UnknownEvent(EventData, frozen=True):
    """An event of a type, or with content, that this version does not know. Its bytes are kept as they are."""
