"""Offering an open engine over HTTP."""

import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from litestar import Router

from treadle.api.engine import Engine
from treadle.config.agent_registry import HomeAgents
from treadle.config.home import Home
from treadle.domain.errors import InvalidState
from treadle.surfaces.http.application import ROUTES, Application
from treadle.surfaces.http.auth import LOOPBACK, Gate, OwnersGate
from treadle.surfaces.http.dependencies import Served, Unwatched
from treadle.surfaces.http.open_streams import Streams
from treadle.surfaces.http.server import OfTheSameUser, listening


def keep_home() -> None:
    raise InvalidState("Another server has this home. Stop that one first, or use another home (TREADLE_HOME).")


def application(
    engine: Engine, home: Home, routes: Sequence[Router] = ROUTES, hand_over: Callable[[], None] = keep_home
) -> Application:
    """The routes over an open engine."""
    front = engine.front
    served = Served(
        engine.service,
        front.memory,
        front.access,
        front.requests,
        home,
        HomeAgents(home),
        engine.clock.now,
        front.house,
        engine.metrics or Unwatched(),
        front.automation(),
        hand_over,
    )
    return Application(served, engine.clock, routes)


@asynccontextmanager
async def to_anyone(
    app: Application,
    listener: socket.socket,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    streams_per_token: int | None = None,
) -> AsyncGenerator[Streams, None]:
    """For whoever has a token, over TCP. The streams that are open there."""
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
