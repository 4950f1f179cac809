"""Reads responses from connections that aiohttp pools.

Nearly every reply is a 200 response in chunks, one per token. aiohttp creates about twenty objects per reply and
handles every chunk in five places. Such a reply is parsed here, with the parser that our own server uses. aiohttp
handles all others: refusals, bodies that are compressed or have a length, heads in two pieces."""

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
    """A pooled connection ended before any byte of the response arrived."""


class HttpResponse(Protocol):
    """A response, from its status on."""

    @property
    def status(self) -> int: ...

    @property
    def content_type(self) -> str:
        """Return the content type of the body."""
        ...

    @property
    def server(self) -> str:
        """Return the `Server` header, in lower case."""
        ...

    @property
    def is_whole(self) -> bool:
        """Return whether the complete body has arrived."""
        ...

    @property
    def is_lost(self) -> bool:
        """Return whether the rest will not arrive and the reader does not know."""
        ...

    async def read(self) -> bytes:
        """Return the next piece of the body, or b"" at its regular end."""
        ...

    def fail(self, error: BaseException, /) -> None:
        """Make the reader fail with this error."""
        ...

    def release(self) -> None:
        """Release the connection: for reuse if the body has ended, else close it."""
        ...


class ChunkStream:
    """A 200 response in chunks."""

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
        self._message_count = 0
        self._can_reuse = False
        self._error: BaseException | None = None
        self._reader: asyncio.Future[None] | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    @property
    def content_type(self) -> str:
        found = _CONTENT_TYPE.search(self._head)
        return found[1].decode("latin-1").strip() if found else UNKNOWN_CONTENT_TYPE

    @property
    def server(self) -> str:
        found = _SERVER.search(self._head)
        return found[1].decode("latin-1").strip() if found else ""

    # ── Parser callbacks, with `on_body` above ──

    def on_message_begin(self) -> None:
        self._message_count += 1

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._can_reuse = self._message_count == 1 and self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.is_whole = True

    # ── The connection ──

    def feed(self, data: bytes) -> None:
        """Parse more data from the connection."""
        if self._parser is None:  # unrequested data must not be taken for the next response
            self._close()
            return
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._can_reuse = False
            self.fail(aiohttp.ClientPayloadError(f"the body cannot be parsed: {error}"))
        self._unread += len(data)
        if self._unread > READ_BUFFER_BYTES and not self.is_whole:
            self._pause()
        if self.is_whole or self._error is not None:
            self._release(self._can_reuse and self._message_count == 1)
        self._wake()

    def fail(self, error: BaseException, /) -> None:
        if self._error is None and not self.is_whole:
            self._error = error
            self._wake()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _close(self) -> None:
        """Abort the connection, even while the request is still being sent."""
        if self._transport is not None:
            self._transport.abort()

    def _release(self, for_reuse: bool) -> None:
        self._parser = None  # it holds a reference to this object
        if for_reuse and self._transport is not None and not self._transport.get_write_buffer_size():
            if self._paused:
                self._resume()
            self._connection.release()
        else:
            self._close()
            self._connection.close()

    # ── The reader ──

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
                self._resume()
            return piece
        if self._error is not None:
            raise self._error
        return b""

    def release(self) -> None:
        if self._parser is not None:
            self._release(False)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class AiohttpResponse:
    """A response that aiohttp has parsed."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.status = response.status
        self.read = response.content.readany
        self.fail = response.content.set_exception
        self.release = response.release

    @property
    def content_type(self) -> str:
        return self.response.headers.get("Content-Type", UNKNOWN_CONTENT_TYPE).lower().partition(";")[0].strip()

    @property
    def server(self) -> str:
        return self.response.headers.get("Server", "").lower()

    @property
    def is_whole(self) -> bool:
        return self.response.content.is_eof()

    @property
    def is_lost(self) -> bool:
        """Return whether aiohttp gave up the connection because the framing is broken. It does not tell the
        reader."""
        connection = self.response.connection
        protocol = connection.protocol if connection is not None else None
        return protocol is not None and protocol.exception() is not None


class ResponseReceiver(ResponseHandler):
    """The protocol of aiohttp with four changes.

    An expected 200 response in chunks is parsed here.

    Resuming is skipped if reading was never paused: aiohttp would run its parser over nothing for each piece that
    is read.

    Reading is resumed in a separate event loop iteration: a few compressed bytes may expand to so many that the
    reader would never wait and other tasks would never run.

    A connection lost while it was pooled is distinguished from one lost during a call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._handle_data = super().data_received
        self._is_paused = False
        self._call_count = 0
        self._has_response = True
        self._expected: tuple[Connection, asyncio.Future[ChunkStream | None]] | None = None
        self._stream: ChunkStream | None = None

    def expect(self, connection: Connection) -> "asyncio.Future[ChunkStream | None]":
        """Start a call. The future yields its response stream as soon as it starts, or None if aiohttp must parse
        it."""
        started: asyncio.Future[ChunkStream | None] = self._loop.create_future()
        self._expected, self._stream = (connection, started), None
        self._call_count += 1
        self._has_response = False
        self._handle_data = self._start_expected
        return started

    def data_received(self, data: bytes) -> None:
        """Pass data to the current handler. Event loops look this method up once, so it cannot be replaced per
        call."""
        self._handle_data(data)

    def _start_expected(self, data: bytes) -> None:
        assert self._expected is not None
        (connection, started), self._expected = self._expected, None
        self._has_response = True
        stream = self._stream = _start_stream(data, connection, self._loop)
        if stream is None:
            super().set_response_params(timer=TimerNoop(), read_until_eof=True, read_bufsize=READ_BUFFER_BYTES)
        self._handle_data = super().data_received if stream is None else stream.feed
        self._handle_data(data)
        if not started.done():
            started.set_result(stream)

    def set_response_params(self, **params: Any) -> None:
        """Start a call that aiohttp makes."""
        self._call_count += 1
        self._has_response = False
        self._handle_data = self._start_other
        super().set_response_params(**params)

    def _start_other(self, data: bytes) -> None:
        """Handle the first data of a call, so that later pieces have no extra cost."""
        self._has_response = True
        self._handle_data = super().data_received
        self._handle_data(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        lost = self.exception() or aiohttp.ServerDisconnectedError()
        if self._expected is not None and not self._expected[1].done():
            self._expected[1].set_exception(lost)
        if self._stream is not None:
            self._stream.fail(lost)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        if self._call_count > 1 and not self._has_response and isinstance(exc, _LOST_ERRORS):
            super().set_exception(PooledConnectionLost(), exc)
        elif exc_cause is None:
            super().set_exception(exc)
        else:
            super().set_exception(exc, exc_cause)

    def pause_reading(self) -> None:
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(super().resume_reading, resume_parser)


def _start_stream(data: bytes, connection: Connection, loop: asyncio.AbstractEventLoop) -> ChunkStream | None:
    """Return the stream for a response that starts with `data`, if it is a regular 200 response in chunks, else
    None."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or not data.startswith(_OK_STATUS_LINE):
        return None
    head = data[:end].lower()
    return (
        ChunkStream(head, connection, loop)
        if _CHUNKED.search(head) and not _UNSUPPORTED_HEADER.search(head)
        else None
    )
