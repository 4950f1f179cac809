"""Access to a home: as its owner, or through the process that owns it."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from treadle.bootstrap.callers import open_owning_caller
from treadle.bootstrap.databases import find_owner
from treadle.config.database_url import is_postgres
from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import ConfigError, StoreOwned, UsageError
from treadle.domain.ids import RunId
from treadle.operations.operation import Caller, LocalCaller, Operation, OperationClient, Q, R
from treadle.remote.owner_watch import NOTICE_SECONDS
from treadle.surfaces.home_access.attachable_home import AttachableHome, find_fault
from treadle.surfaces.terminal.output import note

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine
    from treadle.remote.connection import Connection
    from treadle.surfaces.http.unix_socket import Attachments

Owned = TypeVar("Owned")
OWNER_CHANGE_SECONDS = 2.0
"""How long an owner that cannot be attached to may be one that is starting or ending."""
STARTING_SECONDS = 10.0
"""How long after it took the home an owner may still be starting: a busy machine needs seconds to open a socket."""
TRY_AGAIN_SECONDS = 0.05
HAND_OVER_SECONDS = 600.0
"""How long runs in progress may take to come to a safe point before the home is handed over."""
START_SECONDS = 30.0
"""How long a server may take to start once it has the home."""


def current_home(new: bool = False) -> Home:
    """Return the home that the environment names, for which an empty database may be created if `new`. Raise
    ConfigError if it is not a folder.

    While config.yaml is invalid, its settings are those of the process that owns the home, if there is one."""
    return structs.replace(AttachableHome.from_environment(os.environ).require_folder(), new=new)


def configured_home(new: bool = False) -> Home:
    """Return the home for a process that uses config.yaml itself, whether another process owns the home or not. An
    empty database may be created for it if `new`."""
    return structs.replace(Home.from_environment(os.environ).require_folder(), new=new)


class HomeAccess:
    """A client of a home, whichever process performs its operations. That process changes when the home is handed
    over, or when its owner has ended and another process has replaced it."""

    def __init__(self, client: OperationClient, home: Home, engine: "HostedEngine | None" = None) -> None:
        self._current = _CurrentClient(client)
        self.client: OperationClient = self._current
        self.home = home
        self.engine = engine
        """None: another process executes the runs."""
        self.attachments: Attachments | None = None
        """The commands that use this process."""
        self.notice: Callable[[str], None] = note
        """Reports to the user what this process does with the home."""
        self.released = asyncio.Event()
        """This process has handed the home over."""
        self._connections = AsyncExitStack()
        self._handing_over: asyncio.Task[None] | None = None

    @property
    def is_shared(self) -> bool:
        """Return whether other processes can execute its runs too."""
        return is_postgres(self.home.database_url)

    @property
    def busy(self) -> bool:
        """Return whether this process executes a run."""
        return self.engine is not None and self.engine.busy

    @property
    def is_leaving(self) -> bool:
        """Return whether the service that answers may end without that being an error."""
        return self.engine is None or self._handing_over is not None

    def hand_over_on_request(self, owned: AsyncExitStack, asked: asyncio.Event) -> "asyncio.Task[None]":
        """Release the home, which `owned` closes, once a server asks for it."""

        async def hand_over() -> None:
            await asked.wait()
            self._handing_over = task
            assert self.engine is not None
            self.notice("Handing the home over to `treadle serve`: runs in progress stop at the next safe point.")
            await self.engine.drain(HAND_OVER_SECONDS)
            await owned.aclose()
            self.engine, self.attachments = None, None
            self.released.set()

        task = asyncio.ensure_future(hand_over())
        return task

    async def follow_home(self) -> bool:
        """Attach to the process that owns the home now; return whether there is one that answers."""
        wait_seconds = OWNER_CHANGE_SECONDS
        if self._handing_over is not None:
            await asyncio.shield(self._handing_over)
            self._handing_over, wait_seconds = None, START_SECONDS
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while asyncio.get_running_loop().time() < deadline:
            owned = find_owner(self.home)
            if owned is not None and owned.socket is not None:
                connection = await _attach(owned, self._connections, self.notice)
                if connection is not None:
                    self._current.client = _make_remote(connection)
                    return True
            await asyncio.sleep(TRY_AGAIN_SECONDS)
        return False

    async def close(self) -> None:
        await self._connections.aclose()


class _CurrentClient:
    """Forwards every call to the client of the process that owns the home now."""

    def __init__(self, client: OperationClient) -> None:
        self.client = client

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        return await self.client.call(operation, request, key=key)

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.client.events(run_id, after)

    def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self.client.read_stored(run_id, after)

    def feed(self) -> AsyncGenerator[Event, None]:
        return self.client.feed()


def _make_remote(connection: "Connection") -> OperationClient:
    from treadle.remote.caller import RemoteCaller

    return RemoteCaller(connection)


@asynccontextmanager
async def open_home(
    engine: "HostedEngine", home: Home, base_url: str | None = None, tell: Callable[[str], None] = note
) -> AsyncGenerator[HomeAccess, None]:
    """Open the engine and let other commands attach to it, or attach to the process that owns the home. That
    process does not know an endpoint of this command's line. `tell` reports that it does not answer."""
    from treadle.surfaces.http.unix_socket import accept_attachments

    async with AsyncExitStack() as opened:
        owned = await opened.enter_async_context(AsyncExitStack())
        fault = find_fault(home)
        if fault is None:
            found = await _own_or_attach(lambda: engine, owned, tell)
        else:
            found = await _attach_only(home, fault, owned, tell)
        if not isinstance(found, Attached):
            home_of, asked = HomeAccess(LocalCaller(engine.context), home, engine), asyncio.Event()
            opened.push_async_callback(home_of.close)
            home_of.attachments = await owned.enter_async_context(
                accept_attachments(engine, home, hand_over=asked.set)
            )
            handing_over = home_of.hand_over_on_request(owned, asked)
            try:
                yield home_of
            finally:
                handing_over.cancel()
                await asyncio.wait({handing_over})
            return
        if base_url is not None:
            raise UsageError(
                f"--base-url works only in a process that owns the home. {found.owned} Or add the endpoint to the "
                f"providers in {home.path / 'config.yaml'} and restart that process."
            )
        home_of = HomeAccess(_make_remote(found.connection), home)
        opened.push_async_callback(home_of.close)
        yield home_of


@asynccontextmanager
async def open_admin_caller(
    home: Home, own: Callable[[Home], AbstractAsyncContextManager[Caller]] = open_owning_caller
) -> AsyncGenerator[Caller, None]:
    """Yield a caller that can change a home: this process, if it can own the home, or the process that does."""
    async with AsyncExitStack() as opened:
        found = await _own_or_attach(lambda: own(home), opened)
        yield _make_remote(found.connection) if isinstance(found, Attached) else found


class Attached(Struct, frozen=True):
    """A connection to the process that owns the home."""

    connection: "Connection"
    owned: StoreOwned


async def _own_or_attach(
    own: Callable[[], AbstractAsyncContextManager[Owned]],
    opened: AsyncExitStack,
    tell: Callable[[str], None] = note,
) -> Owned | Attached:
    """Own the home, or attach to its owner. An owner without a socket may be starting or ending, so this is retried
    for a while. Raise OwnerSilent if the owner has a socket and does not answer."""
    began, is_told = asyncio.get_running_loop().time(), False
    while True:
        try:
            return await opened.enter_async_context(own())
        except StoreOwned as owned:
            if owned.socket is not None and (connection := await _attach(owned, opened, tell)) is not None:
                return Attached(connection, owned)
            waited = asyncio.get_running_loop().time() - began
            is_starting = time.time() - owned.since < STARTING_SECONDS
            if waited > OWNER_CHANGE_SECONDS and not is_starting:
                raise
            if waited > NOTICE_SECONDS and not is_told:
                is_told = True
                tell(f"The home is owned by {owned.owner}, which does not answer yet. Waiting for it to start.")
        await asyncio.sleep(TRY_AGAIN_SECONDS)


async def _attach_only(
    home: Home, fault: ConfigError, opened: AsyncExitStack, tell: Callable[[str], None]
) -> Attached:
    """Attach to the owner of a home. Raise `fault` if it has ended: this process has no settings of its own."""

    def refer_to_owner() -> AbstractAsyncContextManager[Attached]:
        owned = find_owner(home)
        if owned is None or owned.socket is None:
            raise fault
        raise owned

    try:
        return await _own_or_attach(refer_to_owner, opened, tell)
    except StoreOwned:
        raise fault from None


async def _attach(owned: StoreOwned, opened: AsyncExitStack, tell: Callable[[str], None]) -> "Connection | None":
    """Return a connection to the owner; None if it does not listen. Raise OwnerSilent if it does not answer."""
    from treadle.remote.connection import Connection, address_of

    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(Connection(address_of(owned), tell))
        if not await connection.is_alive():
            return None  # and let it end: it waits for its connections
        opened.push_async_exit(stack.pop_all())
        return connection
