"""The definition of event types: a name, the data, durable or live, and the stream."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

Stream = Literal["run", "agent", "system"]


class EventData(Struct, frozen=True, omit_defaults=True, gc=False):
    """The data of one type of event."""


class EventType(NamedTuple):
    name: str
    data: type[EventData]
    durable: bool
    stream: Stream
    guard: str = ""
    """The guard that warns with it. Metrics and traces show such events."""


VOCABULARY: dict[str, EventType] = {}
"""Every event type by its name, in the order of definition."""

NAMES: dict[type[EventData], str] = {}

_Data = TypeVar("_Data", bound=type[EventData])


def _define(name: str, stream: Stream, durable: bool, guard: str = "") -> Callable[[_Data], _Data]:
    def define(data: _Data) -> _Data:
        VOCABULARY[name] = EventType(name, data, durable, stream, guard)
        NAMES[data] = name
        return data

    return define


def durable(name: str, stream: Stream = "run", guard: str = "") -> Callable[[_Data], _Data]:
    """Define an event type that is committed before it is published."""
    return _define(name, stream, durable=True, guard=guard)


def live(name: str, stream: Stream = "run") -> Callable[[_Data], _Data]:
    """Define an event type that is published at once and never stored."""
    return _define(name, stream, durable=False)


class UnknownEvent(EventData, frozen=True):
    """An event whose type or content this version does not know. Its bytes are kept as they are."""
