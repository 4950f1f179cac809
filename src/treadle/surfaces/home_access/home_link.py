"""The link to a home for as long as a surface is open: this process owns the home, or it is attached to the owner.

When a server takes the home over, or the owner ends, the link opens the home again. Calls in between wait for it.
Calls that only read, and calls with an idempotency key, are repeated if the owner ends before it has answered."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError, TreadleError
from treadle.domain.ids import RunId
from treadle.operations.operation import Operation, OperationClient, Q, R
from treadle.surfaces.home_access.connection import HomeAccess, open_home
from treadle.surfaces.terminal.output import note

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine

LinkState = Literal["owner", "attached", "leaving", "lost"]
Watcher = Callable[[LinkState, str], None]
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 3.0)
MAX_ATTEMPTS = 3
REOPEN_SECONDS = 30.0
"""How long a call waits for the home: a server that takes it over may need seconds to start."""
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
        self._fault = ""
        """Why the home could not be opened again."""

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
                async with open_home(self._make_engine(), self.home, tell=self._tell) as access:
                    attempt = 0
                    await self._use(access, opened)
            except TreadleError as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
                self._fault = str(error)
                self.watch("lost", self._fault)
            finally:
                self._access = None
            if not self._closing.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._closing.wait(), RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
                    )
                attempt += 1

    def _tell(self, text: str) -> None:
        """Report that the owner is silent: to the surface, or on the terminal while there is no surface yet."""
        if self._access is None and self._opened is not None and not self._opened.done():
            note(text)
        else:
            self.watch("lost", text)

    async def _use(self, access: HomeAccess, opened: "asyncio.Future[None]") -> None:
        """Use the home until it is lost, handed over or closed."""
        access.notice = lambda text: self.watch("leaving", text)
        self._access, self._fault = access, ""
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
            raise StoreError(f"The home is not open: {self._fault or 'it changes its owner.'} Try again.")
        return self._access.client

    def make_key(self) -> str:
        """Return an idempotency key for a call that is to have its effect once, whichever process performs it."""
        return uuid4().hex

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        """Perform an operation. While no process owns the home, the call waits. If the owner ends meanwhile, the
        call is repeated where that is safe: it only reads, or it has a key."""
        attempts_left = MAX_ATTEMPTS if operation.method == "GET" or key is not None else 1
        while True:
            await self._wait_until_open()
            access = self._access
            try:
                return await self._client.call(operation, request, key=key)
            except StoreError as error:
                attempts_left -= 1
                if not self._is_gone(error, access):
                    raise
                self._leave(access)
                if not attempts_left:
                    raise

    def _is_gone(self, error: StoreError, access: HomeAccess | None) -> bool:
        """Return whether a call failed because the process that owned the home has left it."""
        from treadle.remote.connection import ServerGone

        return isinstance(error, ServerGone) or self._access is not access

    def _leave(self, access: HomeAccess | None) -> None:
        """Report the home as lost, unless it was opened again since the call began."""
        if self._access is access:
            self.report_lost()

    async def _wait_until_open(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REOPEN_SECONDS):
                while self._lost.is_set() or self._access is None:  # noqa: ASYNC110 -- no event says it
                    await asyncio.sleep(REOPEN_POLL_SECONDS)

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        return self._client.events(run_id, after)

    async def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the stored events of a run, and continue if the owner of the home ends meanwhile."""
        last, attempts_left = after, MAX_ATTEMPTS
        while True:
            await self._wait_until_open()
            access = self._access
            try:
                async with aclosing(self._client.read_stored(run_id, last)) as events:
                    async for event in events:
                        last = event.sequence
                        yield event
                return
            except StoreError as error:
                attempts_left -= 1
                if not self._is_gone(error, access):
                    raise
                self._leave(access)
                if not attempts_left:
                    raise

    def feed(self) -> AsyncGenerator[Event, None]:
        return self._client.feed()
