"""Reaching a home: as its owner; or, where another process is that, through it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from treadle.app import Engine
from treadle.database_url import is_postgres
from treadle.domain.errors import StoreOwned, UsageError
from treadle.home import Home
from treadle.service import Service
from treadle.surfaces.http.doorway import attachable

if TYPE_CHECKING:
    from treadle.remote.connection import Connection

Keeper = TypeVar("Keeper")
PATIENCE_SECONDS = 2.0
"""For so long an owner that cannot be attached to may be one that is just coming, or just going."""
TRY_AGAIN_SECONDS = 0.05


class Reached(Struct, frozen=True):
    """The service of a home, whoever answers."""

    service: Service
    home: Home
    engine: Engine | None = None
    """None: another process does the work."""
    attended: Callable[[], bool] = lambda: False
    """Whether another command works through this process."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can work on its runs, beside this one."""
        return is_postgres(self.home.database_url)

    @property
    def busy(self) -> bool:
        """Whether this process works on any run."""
        return self.engine is not None and self.engine.busy


@asynccontextmanager
async def reached(engine: Engine, home: Home, base_url: str | None = None) -> AsyncGenerator[Reached, None]:
    """Open the engine, and let other commands attach to it; or attach to the process that owns the home. That one
    does not know an endpoint that was named on this command's line."""
    async with AsyncExitStack() as opened:
        found = await _owned_or_attached(lambda: engine, opened)
        if isinstance(found, Engine):
            attended = await opened.enter_async_context(attachable(engine, home))
            yield Reached(engine.service, home, engine, attended)
            return
        if base_url is not None:
            raise UsageError(
                f"--base-url is for a process that works by itself. {found.owned} Or add the endpoint to the "
                f"providers in {home.path / 'config.yaml'}, and start that process again."
            )
        from treadle.remote.service import RemoteService

        yield Reached(RemoteService(found.connection), home)


@asynccontextmanager
async def kept_up(
    own: Callable[[], AbstractAsyncContextManager[Keeper]], attached: Callable[["Connection"], Keeper]
) -> AsyncGenerator[Keeper, None]:
    """Whoever keeps something up in a home: this process, where it can own the home; else the one that does."""
    async with AsyncExitStack() as opened:
        found = await _owned_or_attached(own, opened)
        yield attached(found.connection) if isinstance(found, Attached) else found


class Attached(Struct, frozen=True):
    connection: "Connection"
    owned: StoreOwned


async def _owned_or_attached(
    own: Callable[[], AbstractAsyncContextManager[Keeper]], opened: AsyncExitStack
) -> Keeper | Attached:
    """Own the home, or attach to its owner. One that answers nowhere may be about to, or about to go: it is looked
    at again for a while."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await opened.enter_async_context(own())
        except StoreOwned as owned:
            if owned.socket is not None and (connection := await _attached(owned.socket, opened)) is not None:
                return Attached(connection, owned)
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(TRY_AGAIN_SECONDS)


async def _attached(socket: str, opened: AsyncExitStack) -> "Connection | None":
    """A connection to the owner; None: it does not answer."""
    from treadle.remote.connection import Address, Connection, ServerGone

    connection = await opened.enter_async_context(Connection(Address(socket)))
    try:
        await connection.get("/healthz", object)
    except ServerGone:
        return None
    return connection
