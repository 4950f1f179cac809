"""Listening: uvicorn with bounds on what a stranger can make it wait for or keep."""

import asyncio
import logging
import os
import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from treadle.operations.refusal import Refusal
from treadle.surfaces.http.peers import find_refusal_reason, read_peer_credentials
from treadle.surfaces.http.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, make_problem

HEAD_TIMEOUT_SECONDS = 10.0
"""Within which the head of a request must have come."""
BODY_IDLE_SECONDS = 20.0
"""For so long nothing of a body may come."""
BODY_TIMEOUT_SECONDS = 300.0
"""Within which all of it must have come."""
MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 10_000
SPARE_FILES = 256
"""Files that the process may want to open beside its connections."""
logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
LINGER_SECONDS = 2.0
"""For so long a connection is held that was told a last word, so that the word arrives."""
ABORT_KEY = "treadle.abort"
"""In the scope of a request: how to end its connection at once, whatever has not been sent."""


def _make_response(status: int, kind: str, detail: str) -> bytes:
    """A whole answer, for what goes wrong before there is a request."""
    problem = make_problem(Refusal(status, kind, detail))
    body = msgspec.json.encode(problem)
    retry = f"retry-after: {RETRY_AFTER_SECONDS}\r\n" if status == 503 else ""
    head = f"HTTP/1.1 {status} {problem.title}\r\ncontent-type: {MEDIA_TYPE}\r\n{retry}"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


_HEAD_TOO_LONG = _make_response(431, "HeadTooLong", f"The head of a request has at most {MAX_HEAD_BYTES} bytes.")
_TOO_SLOW = _make_response(408, "TooSlow", "The request did not come in time; send it again.")
_TOO_MANY_CONNECTIONS = _make_response(
    503, "TooManyConnections", "There are too many connections; come again in a moment."
)
_NOT_A_REQUEST = _make_response(400, "NoRequest", "That is no HTTP request that can be read.")


_STARTED_BY_TOOL = _make_response(
    403,
    "StartedByTool",
    "The process that owns this home refused the connection: it takes this command for one that a tool started. "
    "Run it from a terminal of your own.",
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose head must come soon and be short, and whose body must not be waited for."""

    _late: TimerHandle | None = None
    _head_bytes = 0
    _slow: TimerHandle | None = None
    _begun_at = 0.0
    _heard_at = 0.0
    _ended = False
    most = MAX_CONNECTIONS

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._end_with(_TOO_MANY_CONNECTIONS)
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._late is not None:
            self._head_bytes += len(data)
        if self._slow is not None:
            self._heard_at = self.loop.time()
        super().data_received(data)
        if self._late is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._end_with(_HEAD_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._expect_head(heard=1)

    def on_headers_complete(self) -> None:
        self._head_has_come()
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[ABORT_KEY] = self.transport.abort
        self._begun_at = self._heard_at = self.loop.time()
        self._slow = self.loop.call_later(BODY_IDLE_SECONDS, self._look_at_body)

    def on_message_complete(self) -> None:
        self._body_has_come()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._end_with(_NOT_A_REQUEST)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        self._body_has_come()
        super().connection_lost(exc)

    def _expect_head(self, heard: int = 0) -> None:
        self._head_bytes = heard
        self._late = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self._head_is_late)

    def _head_has_come(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        self._late = None
        if self._head_bytes:
            self._end_with(_TOO_SLOW)
        else:
            self.transport.close()

    def _body_has_come(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _look_at_body(self) -> None:
        now = self.loop.time()
        quiet, whole = self._heard_at + BODY_IDLE_SECONDS, self._begun_at + BODY_TIMEOUT_SECONDS
        if now >= min(quiet, whole):
            self._slow = None
            self._end_with(_TOO_SLOW)
        else:
            self._slow = self.loop.call_at(min(quiet, whole), self._look_at_body)

    def _end_with(self, answer: bytes) -> None:
        """Say a last word, where an answer has not begun, and hang up."""
        self._head_has_come()
        self._body_has_come()
        if self._ended or self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison] -- there is none before the first request
        if not self.pipeline and (idle or not self.cycle.response_started):
            self.transport.write(answer)
        self.transport.write_eof()
        self._ended = True  # what comes still is dropped: hanging up at once would take the answer back
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class SameUserProtocol(BoundedProtocol):
    """A connection over a Unix socket, from a process of the same user that no tool has started; any other is
    refused."""

    def connection_made(self, transport: Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as uvicorn's own
        connection = transport.get_extra_info("socket")
        if read_peer_uid(connection) != os.getuid():
            transport.abort()
            return
        super().connection_made(transport)
        if (reason := find_refusal_reason(connection)) is not None:
            logger.warning("refused a connection to the Unix socket: %s", reason)
            self._end_with(_STARTED_BY_TOOL)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:  # pyright: ignore[reportUnnecessaryComparison] -- a peer that was dropped never had one
            super().connection_lost(exc)


def read_peer_uid(connection: socket.socket) -> int:
    """The user of the process at the other end."""
    return read_peer_credentials(connection)[1]


class _SignalFreeServer(Server):
    """A server that leaves signals to the command that has started it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serve_sockets(
    app: ASGIApp, sockets: Sequence[socket.socket], protocol: type[HttpToolsProtocol] = BoundedProtocol
) -> AsyncGenerator[Callable[[], int], None]:
    """Serve on these sockets until the block is left; requests under way get a moment to end. How many connections
    there are can be asked."""
    config = Config(
        app,  # pyright: ignore[reportArgumentType] -- the two libraries spell ASGI differently
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        backlog=2048,
    )
    server = _SignalFreeServer(config)
    serving: asyncio.Task[Any] = asyncio.create_task(server.serve(list(sockets)), name="treadle-http")
    try:
        yield lambda: len(server.server_state.connections)
    finally:
        server.should_exit = True
        await serving


def raise_file_limit() -> None:
    """Let the process hold as many connections as are taken, as far as the system allows; and take no more than it
    can hold."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    BoundedProtocol.most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(16, soft - SPARE_FILES)


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError where that cannot be."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
