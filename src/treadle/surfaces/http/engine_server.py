"""Serves an open engine over HTTP."""

import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.types import ASGIApp

from treadle.api.engine import HostedEngine
from treadle.domain.errors import InvalidState
from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.assets import DashboardFiles
from treadle.surfaces.http.auth import LOOPBACK_HOSTS, OwnerAuthentication, TokenAuthentication
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.response_headers import SafeResponses
from treadle.surfaces.http.routing import HttpRoute
from treadle.surfaces.http.server import SameUserProtocol, Serving, serve_sockets


def refuse_hand_over() -> None:
    raise InvalidState("Another server uses this home. Stop that server first, or use another home (TREADLE_HOME).")


def make_application(
    engine: HostedEngine,
    routes: Sequence[HttpRoute] | None = None,
    hand_over: Callable[[], None] = refuse_hand_over,
) -> Application:
    """Return the application over an open engine, with all routes unless some are given."""
    return Application(replace(engine.context, hand_over=hand_over), engine.clock, routes)


@asynccontextmanager
async def serve_over_tcp(
    app: Application,
    listener: socket.socket,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    streams_per_token: int | None = None,
    stream_memory: int = DEFAULT_STREAM_MEMORY_BYTES,
) -> AsyncGenerator[OpenStreams, None]:
    """Serve callers that have a token, over TCP. Yield the open streams."""
    streams = OpenStreams(streams_per_token, stream_memory)
    async with serve_sockets(authenticate(app, streams, hosts, origins), [listener]):
        try:
            yield streams
        finally:
            await streams.close()
            await app.close()


def authenticate(app: Application, streams: OpenStreams, hosts: Sequence[str], origins: Sequence[str]) -> ASGIApp:
    """Return the application, with the dashboard, for callers that have a token."""
    authenticated = TokenAuthentication(
        app.asgi, streams, app.access, app.sign_ins, (*LOOPBACK_HOSTS, *hosts), origins
    )
    return SafeResponses(
        DashboardFiles(authenticated, authenticated.knows_host) if app.has_pages else authenticated
    )


@asynccontextmanager
async def serve_over_unix_socket(app: Application, listener: socket.socket) -> AsyncGenerator[Serving, None]:
    """Serve processes of the same user over a Unix socket, without a token."""
    streams = OpenStreams()
    async with serve_sockets(OwnerAuthentication(app.asgi, streams), [listener], SameUserProtocol) as serving:
        try:
            yield serving
        finally:
            await streams.close()
