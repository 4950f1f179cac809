"""Server-sent events. The id of an event is the position after which a reader continues. Live events have none, so
the `Last-Event-ID` that a reader sends is always its last durable event.

Events that are available together are sent together, and a large event is sent in parts that are not copied before.
The hub disconnects a reader that is too slow with a
`stream_reset`; the run is not slowed down. A stream ends with its run, with its token, or with the server. A
reader that does not receive that end in time is disconnected."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from msgspec import Struct
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.domain.envelope import Event, Origin, split_json
from treadle.domain.errors import StoreError
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.users import UserId
from treadle.operations.context import Context
from treadle.operations.event_feed import Missed
from treadle.operations.event_streams import (
    FOLLOW_AGENT,
    FOLLOW_ALL,
    FOLLOW_RUN,
    FollowAgent,
    FollowAll,
    FollowRun,
)
from treadle.operations.refusal import Refusal
from treadle.operations.run_stream import StreamReader
from treadle.ports.journal import PositionedEvent, RunRecord
from treadle.surfaces.http.auth import Hold, get_principal, get_state, get_streams, send_problem
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.routing import serve
from treadle.surfaces.http.server import ABORT_KEY, UNSENT_KEY
from treadle.surfaces.http.stream_memory import ReaderMemory

MAX_EVENTS_BEHIND = 10_000
"""How many events a reader may be behind before it is disconnected."""
GATHER_SECONDS = 0.02
"""How long live events are gathered, so that fewer pieces are sent. Durable events never wait."""
MAX_SENT_BYTES = 32 * 1024
"""How much is given to the connection at once."""
END_TIMEOUT_SECONDS = 2.0
"""How long a reader may take to receive the end of its stream."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
SEQUENCE_PREFIX = b'{"type":"changes","sequence":'
Piece = TypeVar("Piece")
Pieces = AsyncGenerator[bytes, None]
Batches = AsyncGenerator[Sequence[Event], None]
NO_ORIGIN = Origin(RunId(""), SessionId(""), AgentId(""))
"""The origin of messages to the reader of several runs that concern none of them."""


class EventStream(Generic[Piece]):
    """An open stream: an ASGI application that sends pieces until there are no more or the stream is cut."""

    def __init__(
        self,
        pieces: AsyncGenerator[Piece, None],
        encode: Callable[[Piece], Iterable[bytes]],
        request: ApiRequest,
        headers: Sequence[tuple[bytes, bytes]] = (),
        will_reconnect: bool = True,
        memory: ReaderMemory | None = None,
    ) -> None:
        self._pieces = pieces
        self._encode = encode
        self._headers = [*HEADERS, *headers]
        self._context = get_services(request)
        self.will_reconnect = will_reconnect
        self._streams = get_streams(request)
        self._memory = memory or ReaderMemory(self._streams.memory)
        self._memory.disconnect = self._disconnect
        self._principal = get_principal(request)
        refuse_if_full(request)
        self._hold: Hold = get_state(request.scope)["hold"]
        self._pump_task: asyncio.Task[None] | None = None
        self._abort: Callable[[], None] | None = None
        self._count_unsent: Callable[[], int] = int
        self._unsent = 0
        """Bytes that the connection had not sent when it was asked last."""
        self._send: Send | None = None
        self._beats: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._streams.try_count(self._principal):  # other streams were opened since the request
            await self._pieces.aclose()
            await send_problem(_make_too_many(self._streams), scope, send)
            return
        try:
            await self._open(scope, receive, send)
        finally:
            self._streams.uncount(self._principal)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": self._headers}
        )  # before the stream can be cut
        self._abort = scope.get(ABORT_KEY)
        self._count_unsent = scope.get(UNSENT_KEY, int)
        self._pump_task = asyncio.create_task(self._pump(send))
        leaving = asyncio.create_task(_wait_for_disconnect(receive))
        self._streams.add(self)
        self._context.metrics.stream_opened()
        try:
            with self._hold(self.cut):  # until the token or the sign-in ends
                await asyncio.wait((self._pump_task, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._send = None
            self._streams.remove(self)
            self._memory.close()
            self._context.metrics.stream_closed()
            ending = (self._pump_task, leaving, *self._beats)
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)
        error = None if self._pump_task.cancelled() else self._pump_task.exception()
        await _end_response(scope, send)
        if error is not None and not isinstance(error, StoreError | OSError):
            raise error

    def _disconnect(self) -> None:
        """End the stream at once: it holds too much, so its reader does not receive what is being sent."""
        if self._abort is not None:
            self._abort()
        self.cut()

    def cut(self) -> None:
        if self._pump_task is not None:
            self._pump_task.cancel()

    def beat(self) -> None:
        self._hold_unsent()
        if self._send is not None and not self._beats:  # at most one pending heartbeat per reader
            comment = self._send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
            beat = asyncio.ensure_future(comment)
            self._beats.add(beat)
            beat.add_done_callback(self._beats.discard)

    async def _pump(self, send: Send) -> None:
        encode = self._encode
        async with aclosing(self._pieces) as pieces:
            self._send = send
            async for piece in pieces:
                self._memory.hold_piece(
                    len(piece) if isinstance(piece, bytes) else 0
                )  # who yields events counts them
                for number, part in enumerate(encode(piece)):  # each part waits until the one before is sent
                    if number:
                        await asyncio.sleep(0)  # a lost connection is noticed between two parts
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                    self._hold_unsent()
                self._memory.release_piece()
                del piece  # it is not held while the stream waits for the next one

    def _hold_unsent(self) -> None:
        """Count what waits in the connection."""
        unsent = self._count_unsent()
        if unsent != self._unsent:
            self._memory.hold(unsent - self._unsent)
            self._unsent = unsent


def refuse_if_full(request: ApiRequest) -> None:
    """Raise Refusal if the token has as many streams open as it may."""
    streams = get_streams(request)
    if streams.is_full_for(get_principal(request)):
        raise _make_too_many(streams)


def _make_too_many(streams: OpenStreams) -> Refusal:
    return Refusal(429, "TooManyStreams", streams.limit_message)


async def _end_response(scope: Scope, send: Send) -> None:
    """End the response. Abort the connection if the reader does not receive the pending data."""
    try:
        async with asyncio.timeout(END_TIMEOUT_SECONDS):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        if (abort := scope.get(ABORT_KEY)) is not None:  # other servers than ours have none
            abort()
            await asyncio.sleep(0)  # let the event loop close it
    except OSError:
        pass  # the reader has disconnected


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the reader has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


# ── Events on the wire ─────────────────────────────────────────────────────────────────────────────


def split_bytes(body: bytes) -> Iterator[bytes]:
    """Yield parts that are sent one after the other."""
    for at in range(0, len(body), MAX_SENT_BYTES):
        yield body[at : at + MAX_SENT_BYTES]


def frame_events(events: Sequence[Event]) -> Iterator[bytes]:
    """Yield the events of one run as server-sent events, in parts."""
    return _gather_parts(_frame(event, event.sequence if event.durable else None) for event in events)


def _gather_parts(frames: Iterable[tuple[bytes, bytes, bytes]]) -> Iterator[bytes]:
    """Yield frames in parts. Small frames are sent together, and of a large one only a part is copied at a time."""
    part, size = list[bytes](), 0
    for frame in frames:
        head, data, tail = frame
        if len(data) > MAX_SENT_BYTES:
            yield b"".join([*part, head])
            yield from split_bytes(data)
            part, size = [tail], len(tail)
            continue
        part += frame
        size += len(head) + len(data) + len(tail)
        if size > MAX_SENT_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _frame(event: Event, position: int | None) -> tuple[bytes, bytes, bytes]:
    """Return an event with its name and, if it is durable, the id from which a reader continues, as the bytes
    before its data, its data, and the bytes after it."""
    name = event.type.encode()
    head, data, tail = split_json(event)
    if position is None:
        return b"event: %b\ndata: %b" % (name, head), data, tail + b"\n\n"
    return b"id: %d\nevent: %b\ndata: %b" % (position, name, head), data, tail + b"\n\n"


def read_run(record: RunRecord, after: int, context: Context, memory: ReaderMemory) -> Batches:
    return context.service.batches(
        StreamReader(
            run_id=record.origin.run_id,
            after=after,
            backlog=MAX_EVENTS_BEHIND,
            gather_seconds=GATHER_SECONDS,
            record=record,
            memory=memory,
        )
    )


async def read_run_from_start(record: RunRecord, lost: int, context: Context, memory: ReaderMemory) -> Batches:
    """Yield all events of a run, for a reader that asked for events after one that does not exist."""
    yield (
        context.service.reset(
            record.origin, f"There is no event {lost}; the stream starts again from the beginning."
        ),
    )
    async with aclosing(read_run(record, 0, context, memory)) as batches:
        async for batch in batches:
            yield batch


class FeedFilter(Struct, frozen=True):
    """Which runs a reader of many runs follows, and whether it receives their live events too."""

    agents: Sequence[str] | None
    owner: UserId | None
    live: bool = False


FeedItem = PositionedEvent | Event | Missed
FeedPiece = bytes | Sequence[FeedItem]


async def read_feed(
    after: int | None, filter_: FeedFilter, context: Context, memory: ReaderMemory
) -> AsyncGenerator[FeedPiece, None]:
    service = context.service
    if after is not None and after > await service.position():
        yield (service.reset(NO_ORIGIN, f"There is no event {after}; the stream starts again from the beginning."),)
        after = 0
    if after is None:  # tell the reader where it begins, so that it can continue there before the first event
        after = await service.position()
        yield b"id: %d\n\n" % after
    read = service.live_feed if filter_.live else service.feed_pages
    async with aclosing(read(after, filter_.agents, filter_.owner)) as feed:
        async for page in feed:
            events = [item.event if isinstance(item, PositionedEvent) else item for item in page]
            held = [event for event in events if isinstance(event, Event)]
            memory.hold_events(held)
            await asyncio.sleep(0)  # readers that are disconnected because of this return their memory first
            yield page
            memory.release_events(held)
            del page, events, held


def frame_feed(piece: FeedPiece) -> Iterable[bytes]:
    """Yield a piece of the feed as server-sent events, in parts."""
    return (piece,) if isinstance(piece, bytes) else _gather_parts(map(frame_feed_item, piece))


def frame_feed_item(item: FeedItem) -> tuple[bytes, bytes, bytes]:
    """Return a durable event with its position, a live event, or a comment about dropped live events."""
    match item:
        case Event():
            return _frame(item, None)
        case Missed(events=count):
            dropped = b": %d live events were dropped: this reader is too slow." % count
            return dropped, b"", b" Durable events are complete.\n\n"
        case _:
            return _frame(item.event, item.position)


def frame_changes(encoded: bytes) -> Iterator[bytes]:
    """Yield changes of a transcript as a server-sent event, in parts. Its id is the sequence at their beginning."""
    sequence = encoded[len(SEQUENCE_PREFIX) : encoded.index(b",", len(SEQUENCE_PREFIX))]
    return split_bytes(b"id: %b\nevent: changes\ndata: %b\n\n" % (sequence, encoded))


# ── Routes ─────────────────────────────────────────────────────────────────────────────────────────


@serve(FOLLOW_RUN)
async def stream_run(wanted: FollowRun, request: ApiRequest) -> ASGIApp:
    """Serve `events.of_run`."""
    context = get_context(request)
    record = await context.visible_run(wanted.run_id)
    last_known = _read_cursor(request)
    start = (wanted.after or 0) if last_known is None else last_known
    if record.outcome is not None and start == record.sequence:
        return Response(status_code=204)  # a browser does not reconnect after that
    memory = ReaderMemory(get_streams(request).memory)
    if wanted.view == "transcript":
        known = 0 if start > record.sequence else start
        changes = context.service.follow_transcript(record.origin.run_id, known, memory)
        return EventStream(changes, frame_changes, request, memory=memory)
    # After an unknown position, the reader is told and gets everything.
    read = read_run_from_start if start > record.sequence else read_run
    return EventStream(read(record, start, context, memory), frame_events, request, memory=memory)


@serve(FOLLOW_AGENT)
async def stream_agent(wanted: FollowAgent, request: ApiRequest) -> ASGIApp:
    """Serve `events.of_agent`."""
    context = get_context(request)
    filter_ = FeedFilter((await context.known_agent(wanted.name),), context.principal.only_owner, wanted.live)
    return _stream_feed(_read_cursor(request, wanted.after), filter_, request)


@serve(FOLLOW_ALL)
async def stream_all(wanted: FollowAll, request: ApiRequest) -> ASGIApp:
    """Serve `events.of_all`."""
    context = get_context(request)
    filter_ = FeedFilter(context.principal.agents, context.principal.only_owner, wanted.live)
    return _stream_feed(_read_cursor(request, wanted.after), filter_, request)


def _stream_feed(after: int | None, filter_: FeedFilter, request: ApiRequest) -> ASGIApp:
    memory = ReaderMemory(get_streams(request).memory)
    return EventStream(read_feed(after, filter_, get_context(request), memory), frame_feed, request, memory=memory)


def _read_cursor(request: ApiRequest, after: str | None = None) -> int | None:
    """Return the position after which a reader continues: the id of the last event that it received, or `after`."""
    cursor = request.headers.get("last-event-id") or after
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise Refusal(
            400, "WrongCursor", "The cursor is not an id of this stream. Omit it to start with new events."
        )
    return int(cursor)


ROUTES = [stream_run, stream_agent, stream_all]
