"""The envelope of an event, with its encoding and decoding.

The data of an event is encoded once. These bytes are stored and streamed as they are, so they keep fields and types
that only a later version knows."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from treadle.domain.events import NAMES, VOCABULARY, EventData, UnknownEvent, upcasts
from treadle.domain.events.upcasts import VERSION
from treadle.domain.ids import AgentId, EventId, Instant, RunId, SessionId

LARGE_EVENT_BYTES = 16 * 1024
"""Size of the data from which the readers in a process share an event."""

_LIVE = frozenset(name for name, kind in VOCABULARY.items() if not kind.durable)
_encode = msgspec.json.Encoder().encode
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind.data) for name, kind in VOCABULARY.items()
}


class Draft(Struct, frozen=True, gc=False):
    """An event that has no sequence number yet."""

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
    """Return drafts of several events with the same time."""
    return [Draft(EventId(ids("evt")), timestamp, NAMES[type(data)], data, _encode(data)) for data in events]


class Origin(Struct, frozen=True, gc=False):
    """The part of the envelope that all events of a run share."""

    run_id: RunId
    session_id: SessionId
    agent_id: AgentId
    parent_run_id: RunId | None = None


class Event(Struct, frozen=True, gc=False):
    """One event of a run. The `sequence` of a durable event is its position in the journal, from 1 with no gaps. A
    live event has the sequence of the durable event that it belongs to.

    For example:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        async with treadle.Engine("sqlite:///helper.db") as engine:
            async for event in engine.stream(agent, "Hello."):
                if event.durable and isinstance(event.data, treadle.RunEnd):
                    print(event.sequence, event.type, event.data.text)
    """

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

    def to_json(self) -> str:
        """Return the event as clients of the HTTP API receive it."""
        return to_json(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Return the same as a dictionary."""
        return msgspec.json.decode(to_json(self))

    @property
    def durable(self) -> bool:
        return self.type not in _LIVE  # a type of a later version is durable, or it would not have been stored


class Envelope(Struct, frozen=True):
    """An event as clients receive it, its data still encoded."""

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


_envelope_decoder = msgspec.json.Decoder(Envelope)


def decode_data(type_: str, raw: bytes, version: int = VERSION) -> EventData:
    """Return the typed data of an event, brought to the current version.

    Return `UnknownEvent` for data of a later version that this version cannot decode."""
    decoder = _decoders.get(type_)
    if decoder is None:
        return UnknownEvent()
    try:
        return decoder.decode(raw if version >= upcasts.VERSION else upcasts.upcast(type_, raw, version))
    except msgspec.ValidationError:
        if version > upcasts.VERSION:
            return UnknownEvent()
        raise


def to_json(event: Event) -> bytes:
    """Return the envelope as clients receive it: an `Envelope`, assembled from bytes that are encoded already."""
    return b"%b%b%b" % split_json(event)


def split_json(event: Event) -> tuple[bytes, bytes, bytes]:
    """Return the same in three parts. The second is the data, which is not copied."""
    head = b'{"event_id":%b,"timestamp":%b,%b,"sequence":%d,"type":%b,"data":' % (
        _encode(event.event_id),
        _encode_time(event.timestamp),
        _encode_origin(event.origin),
        event.sequence,
        _encode(event.type),
    )
    return head, event.raw, b',"version":%d}' % event.version


@lru_cache(maxsize=64)
def _encode_time(timestamp: Instant) -> bytes:
    """Return the time as JSON. It is cached, because most events share their time with others."""
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
    """Return the event in an envelope. The inverse of `to_json`."""
    envelope = _envelope_decoder.decode(line)
    raw = bytes(envelope.data)
    return Event(
        event_id=envelope.event_id,
        timestamp=envelope.timestamp.timestamp(),
        origin=Origin(
            RunId(envelope.run_id),
            SessionId(envelope.session_id),
            AgentId(envelope.agent_id),
            None if envelope.parent_run_id is None else RunId(envelope.parent_run_id),
        ),
        sequence=envelope.sequence,
        type=envelope.type,
        data=decode_data(envelope.type, raw, envelope.version),
        raw=raw,
        version=envelope.version,
    )
