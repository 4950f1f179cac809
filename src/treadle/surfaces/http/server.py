"""Runs uvicorn with limits on how long a client can make it wait and how much it must store."""

import asyncio
import logging
import os
import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import msgspec
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from treadle.operations.refusal import Refusal
from treadle.surfaces.http.peers import find_refusal_reason, read_peer_credentials
from treadle.surfaces.http.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, make_problem
from treadle.surfaces.http.request_encoding import NormalisedPath

HEAD_TIMEOUT_SECONDS = 10.0
"""The head of a request must arrive within this time."""
BODY_IDLE_SECONDS = 20.0
"""The longest pause while a body arrives."""
BODY_TIMEOUT_SECONDS = 300.0
"""A whole body must arrive within this time."""
MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 10_000
SPARE_FILES = 256
"""Files that the process may open besides its connections."""
logger = logging.getLogger(__name__)

BACKLOG = 2048
"""Connections that wait to be accepted."""
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
LINGER_SECONDS = 2.0
"""How long a connection stays open after its final response, so that the response arrives."""
ABORT_KEY = "treadle.abort"
"""The key in the scope of a request for the function that aborts its connection."""
UNSENT_KEY = "treadle.unsent"
"""The key in the scope of a request for the function that returns how many bytes its client has not received."""
MAX_UNSENT_BYTES = 32 * 1024
"""A response waits while more than this is unsent."""


def _make_response(status: int, kind: str, detail: str) -> bytes:
    """Return a complete response, for errors before there is a request."""
    problem = make_problem(Refusal(status, kind, detail))
    body = msgspec.json.encode(problem)
    retry = f"retry-after: {RETRY_AFTER_SECONDS}\r\n" if status == 503 else ""
    head = f"HTTP/1.1 {status} {problem.title}\r\ncontent-type: {MEDIA_TYPE}\r\n{retry}"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


_HEAD_TOO_LONG = _make_response(
    431, "HeadTooLong", f"The head of the request exceeds {MAX_HEAD_BYTES} bytes. Send fewer or shorter headers."
)
_TOO_SLOW = _make_response(408, "TooSlow", "The request did not arrive in time. Send it again.")
_TOO_MANY_CONNECTIONS = _make_response(503, "TooManyConnections", "Too many connections. Retry in a moment.")
_NOT_A_REQUEST = _make_response(400, "NoRequest", "The data is not a valid HTTP request.")


_STARTED_BY_TOOL = _make_response(
    403,
    "StartedByTool",
    "The process that owns this home refused the connection: a tool appears to have started this command. "
    "Run it from your own terminal.",
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose head must be short and arrive soon, and whose body must not stall.

    Uvicorn has no settings for these limits. The overrides are for safety and save no time.
    `tests/test_library_internals.py` fails when an upgrade changes what they use."""

    _head_timer: TimerHandle | None = None
    _head_bytes = 0
    _body_timer: TimerHandle | None = None
    _body_started_at = 0.0
    _received_at = 0.0
    _is_ended = False
    max_connections = MAX_CONNECTIONS

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as in uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        if len(self.connections) > self.max_connections:
            self._end_with_response(_TOO_MANY_CONNECTIONS)
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        if self._head_timer is not None:
            self._head_bytes += len(data)
        if self._body_timer is not None:
            self._received_at = self.loop.time()
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._end_with_response(_HEAD_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head(received=1)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        super().on_headers_complete()
        scope = cast("dict[str, Any]", self.scope)
        scope[ABORT_KEY], scope[UNSENT_KEY] = self.transport.abort, self.transport.get_write_buffer_size
        self._body_started_at = self._received_at = self.loop.time()
        self._body_timer = self.loop.call_later(BODY_IDLE_SECONDS, self._check_body)

    def on_message_complete(self) -> None:
        self._stop_body_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._end_with_response(_NOT_A_REQUEST)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_body_timer()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Return whether no request has begun that is not answered yet."""
        is_answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] -- there is none before the first request
        is_reading_head = self._head_timer is not None and self._head_bytes > 0
        return is_answered and not self.pipeline and not is_reading_head

    def _expect_head(self, received: int = 0) -> None:
        self._head_bytes = received
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self._handle_late_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _handle_late_head(self) -> None:
        self._head_timer = None
        if self._head_bytes:
            self._end_with_response(_TOO_SLOW)
        else:
            self.transport.close()

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _check_body(self) -> None:
        now = self.loop.time()
        idle_deadline, body_deadline = (
            self._received_at + BODY_IDLE_SECONDS,
            self._body_started_at + BODY_TIMEOUT_SECONDS,
        )
        if now >= min(idle_deadline, body_deadline):
            self._body_timer = None
            self._end_with_response(_TOO_SLOW)
        else:
            self._body_timer = self.loop.call_at(min(idle_deadline, body_deadline), self._check_body)

    def _end_with_response(self, response: bytes) -> None:
        """Send a final response, if none has started, and close the connection."""
        self._stop_head_timer()
        self._stop_body_timer()
        if self._is_ended or self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] -- there is none before the first request
        if not self.pipeline and (idle or not self.cycle.response_started):
            self.transport.write(response)
        self.transport.write_eof()
        self._is_ended = True  # later data is dropped: closing at once could discard the response
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class SameUserProtocol(BoundedProtocol):
    """A connection over a Unix socket from a process of the same user that no tool started. Any other is
    refused."""

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as in uvicorn
        connection = transport.get_extra_info("socket")
        if read_peer_uid(connection) != os.getuid():
            transport.abort()
            return
        super().connection_made(transport)
        if (reason := find_refusal_reason(connection)) is not None:
            logger.warning("refused a connection to the Unix socket: %s", reason)
            self._end_with_response(_STARTED_BY_TOOL)

    def _handle_late_head(self) -> None:
        """Let a command stay connected without a request: this process does not end between two of its requests."""
        if self._head_bytes:
            super()._handle_late_head()
        else:
            self._head_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:  # pyright: ignore[reportUnnecessaryComparison] -- a refused peer never had one
            super().connection_lost(exc)


def read_peer_uid(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    return read_peer_credentials(connection)[1]


class _SignalFreeServer(Server):
    """A server that leaves signals to the command that started it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Serving:
    """The connections of a server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._extra: dict[socket.socket, asyncio.Server] = {}

    def count_connections(self) -> int:
        return len(self._server.server_state.connections)

    def count_requests(self) -> int:
        """Return the number of requests that are not answered yet."""
        connections = cast("set[BoundedProtocol]", self._server.server_state.connections)
        return sum(not connection.is_idle for connection in connections)

    def refuse_more(self) -> None:
        """Accept no more connections. Those that are open stay open."""
        for listening in self._server.servers:
            listening.close()

    def close_after_responses(self) -> None:
        """Close each connection after its next response, so that its client opens another one."""
        closing = (b"connection", b"close")
        self._server.config.encoded_headers.append(closing)
        self._server.server_state.default_headers = [*self._server.server_state.default_headers, closing]

    async def accept_only_from(self, listeners: Sequence[socket.socket]) -> None:
        """Accept connections from these listening sockets, besides those that the server began with."""
        while not self._server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0)
        for listener in self._extra.keys() - set(listeners):
            self._extra.pop(listener).close()
        for listener in listeners:
            if listener not in self._extra:
                self._extra[listener] = await self._listen(listener)

    async def _listen(self, listener: socket.socket) -> asyncio.Server:
        server = self._server

        def make_protocol() -> asyncio.Protocol:
            return cast("type[HttpToolsProtocol]", server.config.http_protocol_class)(
                server.config, server.server_state, server.lifespan.state
            )

        opened = await asyncio.get_running_loop().create_server(make_protocol, sock=listener.dup(), backlog=BACKLOG)
        server.servers.append(opened)
        return opened


@asynccontextmanager
async def serve_sockets(
    app: ASGIApp, sockets: Sequence[socket.socket], protocol: type[HttpToolsProtocol] = BoundedProtocol
) -> AsyncGenerator[Serving, None]:
    """Serve on these sockets until the block ends. Requests in progress get a moment to finish."""
    config = Config(
        NormalisedPath(app),  # pyright: ignore[reportArgumentType] -- the two libraries type ASGI differently
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        backlog=BACKLOG,
    )
    server = _SignalFreeServer(config)
    serving: asyncio.Task[Any] = asyncio.create_task(server.serve(list(sockets)), name="treadle-http")
    try:
        yield Serving(server)
    finally:
        server.should_exit = True
        await serving


def raise_file_limit() -> None:
    """Raise the limit on open files for all accepted connections as far as the system allows, and accept no more
    than fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    BoundedProtocol.max_connections = (
        MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, soft - SPARE_FILES)
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise OSError if the address cannot be used."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
