"""Offering an open engine over HTTP."""

import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from litestar.handlers import HTTPRouteHandler

from treadle.api.engine import Engine
from treadle.domain.errors import InvalidState
from treadle.surfaces.http.application import Application
from treadle.surfaces.http.auth import LOOPBACK, Gate, OwnersGate
from treadle.surfaces.http.open_streams import Streams
from treadle.surfaces.http.server import OfTheSameUser, listening


def keep_home() -> None:
    raise InvalidState("Another server has this home. Stop that one first, or use another home (TREADLE_HOME).")


def application(
    engine: Engine,
    routes: Sequence[HTTPRouteHandler] | None = None,
    hand_over: Callable[[], None] = keep_home,
) -> Application:
    """Return the application over an open engine, with all routes unless some are given."""
    return Application(replace(engine.context, hand_over=hand_over), engine.clock, routes)


@asynccontextmanager
async def to_anyone(
    app: Application,
    listener: socket.socket,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    streams_per_token: int | None = None,
) -> AsyncGenerator[Streams, None]:
    """Serve callers that have a token, over TCP. Yield the streams that are open there."""
    streams = Streams(streams_per_token)
    gate = Gate(app.asgi, streams, app.access, (*LOOPBACK, *hosts), origins)
    async with listening(gate, [listener]):
        try:
            yield streams
        finally:
            await streams.close()


@asynccontextmanager
async def to_the_owner(app: Application, listener: socket.socket) -> AsyncGenerator[Callable[[], int], None]:
    """For processes of the same user, on a Unix socket: they need no token. How many are there can be asked."""
    streams = Streams()
    async with listening(OwnersGate(app.asgi, streams), [listener], OfTheSameUser) as connections:
        try:
            yield connections
        finally:
            await streams.close()
