"""The link to a home for as long as a surface is open: this process owns the home, or it is attached to the owner.

When a server takes the home over, or the owner ends, the link opens the home again. Calls in between raise
`StoreError`; calls that only read are repeated."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal

from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError, TreadleError
from treadle.domain.ids import RunId
from treadle.operations.operation import Operation, OperationClient, Q, R
from treadle.surfaces.cli.connection import HomeAccess, open_home

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine

LinkState = Literal["owner", "attached", "leaving", "lost"]
Watcher = Callable[[LinkState, str], None]
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 3.0)
READ_ATTEMPTS = 3
REOPEN_SECONDS = 15.0
REOPEN_POLL_SECONDS = 0.05


class HomeLink:
    """A client of a home that outlives the process that owns it."""

    def __init__(self, home: Home, make_engine: "Callable[[], HostedEngine]") -> None:
        self.home = home
        self.watch: Watcher = lambda state, detail: None
        """Called when the state of the link changes."""
        self._make_engine = make_engine
        self._access: HomeAccess | None = None
        self._lost = asyncio.Event()
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def access(self) -> HomeAccess | None:
        """The access to the home, or None while it is not open."""
        return self._access

    @property
    def engine(self) -> "HostedEngine | None":
        """The engine of this process, if it owns the home."""
        return None if self._access is None else self._access.engine

    async def open(self) -> None:
        """Open the home, and keep it open. Raise the error of the first attempt."""
        self._opened = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(self._opened))
        await self._opened

    async def close(self) -> None:
        self._closing.set()
        if self._keeper is not None:
            with suppress(asyncio.CancelledError):
                await self._keeper

    def report_lost(self) -> None:
        """Report that the process that owns the home does not answer. The link opens the home again."""
        self._lost.set()

    async def _keep(self, opened: "asyncio.Future[None]") -> None:
        attempt = 0
        while not self._closing.is_set():
            self._lost.clear()
            try:
                async with open_home(self._make_engine(), self.home) as access:
                    attempt = 0
                    await self._use(access, opened)
            except TreadleError as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
                self.watch("lost", str(error))
            finally:
                self._access = None
            if not self._closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._closing.wait(), RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
                    )
                attempt += 1

    async def _use(self, access: HomeAccess, opened: "asyncio.Future[None]") -> None:
        """Use the home until it is lost, handed over or closed."""
        access.notice = lambda text: self.watch("leaving", text)
        self._access = access
        if not opened.done():
            opened.set_result(None)
        self.watch("owner" if access.engine is not None else "attached", "")
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._lost, self._closing, access.released)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            self._access = None
        if not self._closing.is_set():
            self.watch("lost", "")

    # ── The operations, performed by whichever process owns the home ──

    @property
    def _client(self) -> OperationClient:
        if self._access is None:
            raise StoreError("The home is not open at the moment. Try again.")
        return self._access.client

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation. One that only reads is performed again if the owner of the home ends meanwhile."""
        from treadle.remote.connection import ServerGone

        attempts_left = READ_ATTEMPTS if operation.method == "GET" else 1
        while True:
            access = self._access
            try:
                return await self._client.call(operation, request, key=key)
            except ServerGone:
                attempts_left -= 1
                if not attempts_left:
                    self._leave(access)
                    raise
                await self._wait_for_owner(access)

    def _leave(self, access: HomeAccess | None) -> None:
        """Report the home as lost, unless it was opened again since the call began."""
        if self._access is access:
            self.report_lost()

    async def _wait_for_owner(self, access: HomeAccess | None) -> None:
        """Leave the process that has ended, and wait until the home is open again."""
        self._leave(access)
        with suppress(TimeoutError):
            async with asyncio.timeout(REOPEN_SECONDS):
                while self._lost.is_set() or self._access is None:  # noqa: ASYNC110 -- no event says it
                    await asyncio.sleep(REOPEN_POLL_SECONDS)

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self._client.events(run_id, after)

    async def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the stored events of a run, and continue if the owner of the home ends meanwhile."""
        from treadle.remote.connection import ServerGone

        last, attempts_left = after, READ_ATTEMPTS
        while True:
            access = self._access
            try:
                async with aclosing(self._client.read_stored(run_id, last)) as events:
                    async for event in events:
                        last = event.sequence
                        yield event
                return
            except ServerGone:
                attempts_left -= 1
                if not attempts_left:
                    self._leave(access)
                    raise
                await self._wait_for_owner(access)

    def feed(self) -> AsyncGenerator[Event, None]:
        return self._client.feed()
