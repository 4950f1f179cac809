"""The envelope of an event, and its two ways over the wire.

The bytes of an event's data are made once and kept: they are what is stored, what is streamed, and what keeps
fields and types that only a later version knows."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from treadle.domain.events import NAMES, VOCABULARY, EventData, UnknownEvent
from treadle.domain.ids import AgentId, EventId, Instant, RunId, SessionId

VERSION = 1
"""The version of the event data that this code writes."""

_LIVE = frozenset(name for name, kind in VOCABULARY.items() if not kind.durable)
_encode = msgspec.json.Encoder().encode
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind.data) for name, kind in VOCABULARY.items()
}


class Draft(Struct, frozen=True, gc=False):
    """An event that has happened, or is meant to, and has no sequence yet."""

    event_id: EventId
    timestamp: Instant
    type: str
    data: EventData
    raw: bytes


def make_draft(event_id: EventId, timestamp: Instant, data: EventData) -> Draft:
    return Draft(event_id, timestamp, NAMES[type(data)], data, _encode(data))


def make_drafts(
    ids: Callable[[Literal["evt"]], str], timestamp: Instant, events: Iterable[EventData]
) -> list[Draft]:
    """Several events that happen at the same time."""
    return [Draft(EventId(ids("evt")), timestamp, NAMES[type(data)], data, _encode(data)) for data in events]


class Origin(Struct, frozen=True, gc=False):
    """Whose event it is: the part of the envelope that all events of a run share."""

    run_id: RunId
    session_id: SessionId
    agent_id: AgentId
    parent_run_id: RunId | None = None


class Event(Struct, frozen=True, gc=False):
    """One event of a run. For a durable one `sequence` is its place in the journal, from 1 without a gap; a live
    one has the sequence of the durable event it belongs to."""

    event_id: EventId
    timestamp: Instant
    origin: Origin
    sequence: int
    type: str
    data: EventData
    raw: bytes
    version: int = VERSION

    @property
    def run_id(self) -> RunId:
        return self.origin.run_id

    @property
    def session_id(self) -> SessionId:
        return self.origin.session_id

    @property
    def durable(self) -> bool:
        return self.type not in _LIVE  # what a later version stored is durable, or it would not be here


class _Wire(Struct, frozen=True):
    event_id: str
    timestamp: datetime
    agent_id: str
    run_id: str
    parent_run_id: str | None
    session_id: str
    sequence: int
    type: str
    data: Raw
    version: int = VERSION


_wire_decoder = msgspec.json.Decoder(_Wire)


def decode_data(type_: str, raw: bytes, version: int = VERSION) -> EventData:
    """The typed data of an event. What a later version wrote and this one cannot read is `Unknown`."""
    decoder = _decoders.get(type_)
    if decoder is None:
        return UnknownEvent()
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        if version > VERSION:
            return UnknownEvent()
        raise


def to_json(event: Event) -> bytes:
    """The envelope as others see it: a `_Wire`, put together from bytes that are there already."""
    return b'{"event_id":%b,"timestamp":%b,%b,"sequence":%d,"type":%b,"data":%b,"version":%d}' % (
        _encode(event.event_id),
        _encode_time(event.timestamp),
        _encode_origin(event.origin),
        event.sequence,
        _encode(event.type),
        event.raw,
        event.version,
    )


@lru_cache(maxsize=64)
def _encode_time(timestamp: Instant) -> bytes:
    """Most events happen together with others."""
    return _encode(datetime.fromtimestamp(timestamp, UTC))


@lru_cache(maxsize=1024)
def _encode_origin(origin: Origin) -> bytes:
    agent_id, run_id = _encode(origin.agent_id), _encode(origin.run_id)
    parent_run_id, session_id = _encode(origin.parent_run_id), _encode(origin.session_id)
    return b'"agent_id":%b,"run_id":%b,"parent_run_id":%b,"session_id":%b' % (
        agent_id,
        run_id,
        parent_run_id,
        session_id,
    )


def from_json(line: bytes) -> Event:
    """The event that an envelope holds; the inverse of `to_json`."""
    wire = _wire_decoder.decode(line)
    raw = bytes(wire.data)
    return Event(
        wire.event_id,
        wire.timestamp.timestamp(),
        Origin(
            RunId(wire.run_id),
            SessionId(wire.session_id),
            AgentId(wire.agent_id),
            None if wire.parent_run_id is None else RunId(wire.parent_run_id),
        ),
        wire.sequence,
        wire.type,
        decode_data(wire.type, raw, wire.version),
        raw,
        wire.version,
    )
