"""What comes back over a connection that aiohttp keeps.

Nearly every reply is a good one in chunks, as many as it has tokens. aiohttp makes some twenty objects for each
reply, and looks at every chunk in five places. Such a reply is taken apart here, by the parser that our own server
uses. All others are left to aiohttp: refusals, bodies that are packed or have a length, heads in two pieces."""

import asyncio
import re
from typing import Any, Protocol

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from httptools import HttpParserError, HttpResponseParser

READ_BUFFER_BYTES = 256 * 1024
UNKNOWN_CONTENT_TYPE = "application/octet-stream"
_LOST_ERRORS = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
_OK_STATUS_LINE = b"HTTP/1.1 200 "
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: chunked(?:\r\n|\Z)")
_UNSUPPORTED_HEADER = re.compile(rb"\r\n(?:content-encoding|content-length|upgrade):")
_SERVER = re.compile(rb"\r\nserver:[ \t]*([^\r\n]*)")
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:[ \t]*([^\r\n;]*)")


class PooledConnectionLost(aiohttp.ServerDisconnectedError):
    """A connection that was kept from an earlier call has ended before any byte of an answer came."""


class HttpResponse(Protocol):
    """What a server says to a request, from its status on."""

    @property
    def status(self) -> int: ...

    @property
    def kind(self) -> str:
        """What its body is said to be."""
        ...

    @property
    def server(self) -> str:
        """What the server calls itself, in lower case."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether all of its body has come."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the rest of it will not come, and its reader does not know."""
        ...

    async def read(self) -> bytes:
        """The next piece of its body; nothing when that has ended as it should."""
        ...

    def fail(self, error: BaseException, /) -> None:
        """Let its reader fail so."""
        ...

    def release(self) -> None:
        """Let go of the connection: for reuse if the body has come to its end, else it is cut."""
        ...


class ChunkStream:
    """A good answer in chunks."""

    status = 200
    is_lost = False

    def __init__(self, head: bytes, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.is_whole = False
        self._head = head
        self._connection = connection
        self._transport = connection.transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._unread = 0
        self._paused = False
        self._answers = 0
        self._can_stay = False
        self._error: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    @property
    def kind(self) -> str:
        found = _CONTENT_TYPE.search(self._head)
        return found[1].decode("latin-1").strip() if found else UNKNOWN_CONTENT_TYPE

    @property
    def server(self) -> str:
        found = _SERVER.search(self._head)
        return found[1].decode("latin-1").strip() if found else ""

    # ── What the parser has found; `on_body` is the first ──

    def on_message_begin(self) -> None:
        self._answers += 1

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._can_stay = self._answers == 1 and self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.is_whole = True

    # ── The connection ──

    def feed(self, data: bytes) -> None:
        """More has come."""
        if self._parser is None:  # nobody has asked for this, and it must not be taken for the next answer
            self._close()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._can_stay = False
            self.fail(aiohttp.ClientPayloadError(f"the body cannot be parsed: {error}"))
        self._unread += len(data)
        if self._unread > READ_BUFFER_BYTES and not self.is_whole:
            self._pause()
        if self.is_whole or self._error is not None:
            self._let_go(self._can_stay and self._answers == 1)
        self._wake()

    def fail(self, error: BaseException, /) -> None:
        if self._error is None and not self.is_whole:
            self._error = error
            self._wake()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close(self) -> None:
        """Also where the request is still going out: nobody waits for the rest of that."""
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self, for_reuse: bool) -> None:
        self._parser = None  # which refers to this
        if for_reuse and self._transport is not None and not self._transport.get_write_buffer_size():
            if self._paused:
                self._go_on()
            self._connection.release()
        else:
            self._close()
            self._connection.close()

    # ── Its reader ──

    async def read(self) -> bytes:
        if not self._pieces and not self.is_whole and self._error is None:
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._pieces:
            piece = b"".join(self._pieces)
            self._pieces.clear()
            self._unread = 0
            if self._paused:
                self._go_on()
            return piece
        if self._error is not None:
            raise self._error
        return b""

    def release(self) -> None:
        if self._parser is not None:
            self._let_go(False)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class AiohttpResponse:
    """An answer that aiohttp has taken apart."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.status = response.status
        self.read = response.content.readany
        self.fail = response.content.set_exception
        self.release = response.release

    @property
    def kind(self) -> str:
        return self.response.headers.get("Content-Type", UNKNOWN_CONTENT_TYPE).lower().partition(";")[0].strip()

    @property
    def server(self) -> str:
        return self.response.headers.get("Server", "").lower()

    @property
    def is_whole(self) -> bool:
        return self.response.content.is_eof()

    @property
    def is_lost(self) -> bool:
        """aiohttp gives a connection up when the framing of a body is broken, and does not tell its reader."""
        connection = self.response.connection
        protocol = connection.protocol if connection is not None else None
        return protocol is not None and protocol.exception() is not None


class ResponseReceiver(ResponseHandler):
    """aiohttp's own, but for four things.

    A good answer in chunks that was expected is taken apart here.

    Each piece that is read asks for reading to be resumed, and each time the parser is run over nothing, also when
    reading was never paused.

    Reading is resumed in a turn of its own: a few bytes that were compressed may unpack to so many that the reader
    would never have to wait, and nobody else had a turn.

    And a connection that was lost while it was kept is told from one that was lost on a call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._take = super().data_received
        self._held = False
        self._calls = 0
        self._answered = True
        self._expected: tuple[Connection, asyncio.Future[ChunkStream | None]] | None = None
        self._stream: ChunkStream | None = None

    def expect(self, connection: Connection) -> "asyncio.Future[ChunkStream | None]":
        """A call begins: its answer, as soon as that has begun; None if it is aiohttp's to take apart."""
        begun: asyncio.Future[ChunkStream | None] = self._loop.create_future()
        self._expected, self._stream = (connection, begun), None
        self._calls += 1
        self._answered = False
        self._take = self._first_of_expected
        return begun

    def data_received(self, data: bytes) -> None:
        """Event loops ask for this once and keep it, so that it cannot be another for each call."""
        self._take(data)

    def _first_of_expected(self, data: bytes) -> None:
        assert self._expected is not None
        (connection, begun), self._expected = self._expected, None
        self._answered = True
        stream = self._stream = _start_stream(data, connection, self._loop)
        if stream is None:
            super().set_response_params(timer=TimerNoop(), read_until_eof=True, read_bufsize=READ_BUFFER_BYTES)
        self._take = super().data_received if stream is None else stream.feed
        self._take(data)
        if not begun.done():
            begun.set_result(stream)

    def set_response_params(self, **params: Any) -> None:
        """A call begins that aiohttp makes."""
        self._calls += 1
        self._answered = False
        self._take = self._first_of_other
        super().set_response_params(**params)

    def _first_of_other(self, data: bytes) -> None:
        """Once in each call, so that the other pieces cost nothing more."""
        self._answered = True
        self._take = super().data_received
        self._take(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        lost = self.exception() or aiohttp.ServerDisconnectedError()
        if self._expected is not None and not self._expected[1].done():
            self._expected[1].set_exception(lost)
        if self._stream is not None:
            self._stream.fail(lost)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        if self._calls > 1 and not self._answered and isinstance(exc, _LOST_ERRORS):
            super().set_exception(PooledConnectionLost(), exc)
        elif exc_cause is None:
            super().set_exception(exc)
        else:
            super().set_exception(exc, exc_cause)

    def pause_reading(self) -> None:
        self._held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._held:
            self._held = False
            self._loop.call_soon(super().resume_reading, resume_parser)


def _start_stream(data: bytes, connection: Connection, loop: asyncio.AbstractEventLoop) -> ChunkStream | None:
    """The answer that begins so, if it is a good one in chunks that are what they seem."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or not data.startswith(_OK_STATUS_LINE):
        return None
    head = data[:end].lower()
    return (
        ChunkStream(head, connection, loop)
        if _CHUNKED.search(head) and not _UNSUPPORTED_HEADER.search(head)
        else None
    )
