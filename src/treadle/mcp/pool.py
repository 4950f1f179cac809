"""The connections of a process to MCP servers: one for each server, workspace, sandbox rights and user.

The SDK is imported, in a thread, when the first server is used."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from treadle.domain.mcp_servers import McpConnectionState, McpConnectionView
from treadle.domain.secret_refs import find_secret_names, resolve_secret_refs
from treadle.mcp.pins import PinnedContent
from treadle.mcp.server_programs import PlacesOfRuns, ServerPrograms
from treadle.mcp.server_target import ServerTarget
from treadle.ports.sandbox import CommandError, Contents, Programs
from treadle.ports.tool import ToolError

if TYPE_CHECKING:
    import httpx2

    from treadle.mcp.connection import ServerConnection
    from treadle.mcp.transports import RunningServer, Transport

INSTALL = "MCP needs the extra `mcp`: pip install 'treadle[mcp]'"
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0
MAX_RECONNECTS = 3
"""Attempts to reconnect in the background after a connection was lost. After them, the next call tries again."""
IDLE_SECONDS = 900.0
"""How long a connection stays open without a call."""
MAX_CONNECTIONS = 64

_Values = TypeVar("_Values", str, dict[str, str])


class Credentials(Protocol):
    """The secrets of servers."""

    def reveal(self, name: str) -> str | None:
        """Return a secret of the vault, or None if there is none."""
        ...

    def authenticate(self, target: ServerTarget) -> "httpx2.Auth | None":
        """Return how to sign in to a remote server, or None if no one has signed in."""
        ...


@dataclass(slots=True)
class _Slot:
    target: ServerTarget
    connection: "ServerConnection | None" = None
    opening: "asyncio.Task[ServerConnection] | None" = None
    reconnecting: "asyncio.Task[None] | None" = None
    failures: int = 0
    """Failures since the last successful call."""
    retry_at: float = 0.0
    reason: str = ""
    used_at: float = 0.0
    calls: int = 0


class ServerPool:
    """Opens, keeps and closes the connections of a process."""

    def __init__(
        self,
        programs: Programs,
        credentials: Credentials,
        version: str,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        places: PlacesOfRuns | None = None,
        contents: Contents | None = None,
    ) -> None:
        """`places` and `contents` are needed for servers that are programs."""
        self._programs = programs
        self._server_programs = ServerPrograms(programs, places, contents)
        self._credentials = credentials
        self._version = version
        self._now = monotonic
        self._slots: dict[bytes, _Slot] = {}
        self._is_closed = False

    @property
    def states(self) -> list[tuple[str, McpConnectionView]]:
        """The state of every connection, with the name of its server."""
        return [self._describe(slot) for slot in self._slots.values()]

    async def explain_missing_confinement(self, target: ServerTarget) -> str:
        """Return why the program of a server would run without a sandbox, or nothing. Raise ToolError."""
        if target.server.is_remote or target.policy.mode == "off":
            return ""
        try:
            return (await self._programs.confinement()).reason
        except CommandError as error:
            raise ToolError(str(error)) from None

    async def pin_contents(self, target: ServerTarget) -> tuple[PinnedContent, ...]:
        """Copy the code of a server that a run could change, and return what to pin. Raise ToolError."""
        try:
            return await self._server_programs.pin_contents(target)
        except CommandError as error:
            raise ToolError(f"the MCP server `{target.name}` cannot be pinned: {error}") from None

    async def connect(self, target: ServerTarget) -> "tuple[ServerConnection, bool]":
        """Return an open connection and whether it is new. Raise ToolError, with the name of the server, if there
        is none and none can be made now."""
        slot = self._slots.setdefault(target.key, _Slot(target))
        slot.used_at = self._now()
        if slot.connection is not None and not slot.connection.lost.is_set():
            return slot.connection, False
        is_new = slot.opening is None
        if slot.opening is None:
            if (left := slot.retry_at - self._now()) > 0:
                raise ToolError(
                    f"the MCP server `{target.name}` is not available: {slot.reason}. "
                    f"The next attempt is possible in {max(1, round(left))} s."
                )
            slot.opening = asyncio.create_task(self._open(slot))
        try:
            return await asyncio.shield(slot.opening), is_new
        except _Unavailable as error:
            raise ToolError(f"the MCP server `{target.name}` is not available: {error}.") from None

    def note_success(self, target: ServerTarget) -> None:
        """Forget earlier failures of a server after a call succeeded."""
        if (slot := self._slots.get(target.key)) is not None:
            slot.failures, slot.reason = 0, ""
            slot.calls += 1

    async def close(self) -> None:
        """Close all connections and stop all programs."""
        self._is_closed = True
        slots = list(self._slots.values())
        self._slots.clear()
        await asyncio.gather(*(self._close_slot(slot) for slot in slots))

    # ── Opening ──

    async def _open(self, slot: _Slot) -> "ServerConnection":
        target = slot.target
        try:
            await self._make_room()
            connection = await self._make_connection(target)
        except (_Unavailable, CommandError) as error:
            slot.reason = str(error).rstrip(".")
            self._back_off(slot)
            raise _Unavailable(slot.reason) from None
        finally:
            slot.opening = None
        if self._is_closed:
            await connection.close()
            raise _Unavailable("the engine is closing")
        slot.connection = connection
        slot.reconnecting = asyncio.create_task(self._watch(slot, connection))
        return connection

    async def _make_connection(self, target: ServerTarget) -> "ServerConnection":
        if find_spec("mcp") is None:
            raise _Unavailable(INSTALL)
        await asyncio.to_thread(_import_sdk)
        from treadle.mcp.connection import ConnectionFailed, ServerConnection
        from treadle.mcp.transports import RunningServer

        server = RunningServer()
        transport = await self._make_transport(target, server)
        connection = ServerConnection(target.name, transport, server, self._version, target.root)
        try:
            await connection.open(target.server.start_timeout)
        except ConnectionFailed as error:
            raise _Unavailable(_add_path_hint(_add_login_hint(str(error), target), target)) from None
        return connection

    async def _make_transport(self, target: ServerTarget, server: "RunningServer") -> "Transport":
        from treadle.mcp.transports import make_http_client, open_program, open_url

        entry = target.server
        if entry.url is not None:
            auth = self._credentials.authenticate(target)
            headers, url = self._resolve(entry.headers), self._resolve(entry.url)
            return open_url(url, make_http_client(headers, entry.timeout, auth), server)
        program = await self._server_programs.prepare(target, lambda values: self._resolve(dict(values)))
        return open_program(self._programs, program, server)

    def _resolve(self, values: _Values) -> _Values:
        """Return arguments, variables, headers or an address with secrets in place of their references."""
        text = msgspec.json.encode(values).decode()
        if not find_secret_names(text):
            return values

        def reveal(name: str) -> str:
            value = self._credentials.reveal(name)
            if value is None:
                raise _Unavailable(f"the vault has no secret {name}; store it with `treadle vault set {name}`")
            return value

        return msgspec.json.decode(resolve_secret_refs(text, reveal), type=type(values))

    def _back_off(self, slot: _Slot) -> None:
        """Set the time of the next attempt. The first one after a success may come immediately."""
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** (slot.failures - 1), MAX_BACKOFF_SECONDS) if slot.failures else 0.0
        slot.failures += 1
        slot.retry_at = self._now() + pause

    # ── Keeping ──

    async def _watch(self, slot: _Slot, connection: "ServerConnection") -> None:
        """Wait until a connection is lost or idle. Reconnect a lost one in the background, with backoff."""
        while not connection.lost.is_set():
            left = slot.used_at + IDLE_SECONDS - self._now()
            if left <= 0 and connection.active == 0:
                slot.connection = None
                await connection.close()
                return
            try:
                async with asyncio.timeout(max(left, 1.0)):
                    await connection.lost.wait()
            except TimeoutError:
                continue
        if self._is_closed or slot.connection is not connection:
            return
        slot.connection, slot.reason = None, connection.reason or "the connection was lost"
        self._back_off(slot)
        if slot.failures <= MAX_RECONNECTS:
            await asyncio.sleep(max(0.0, slot.retry_at - self._now()))
            if slot.connection is None and slot.opening is None and not self._is_closed:
                slot.opening = asyncio.create_task(self._open(slot))
                slot.opening.add_done_callback(_consume_error)

    async def _make_room(self) -> None:
        """Close the connection that was idle for the longest time, if there are too many."""
        open_slots = [slot for slot in self._slots.values() if slot.connection is not None]
        if len(open_slots) < MAX_CONNECTIONS:
            return
        idle = [slot for slot in open_slots if slot.connection is not None and slot.connection.active == 0]
        if not idle:
            raise _Unavailable(f"{MAX_CONNECTIONS} other connections are in use; try again later")
        oldest = min(idle, key=lambda slot: slot.used_at)
        del self._slots[oldest.target.key]
        await self._close_slot(oldest)

    async def _close_slot(self, slot: _Slot) -> None:
        for task in (slot.reconnecting, slot.opening):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait([task])
        if slot.connection is not None:
            await slot.connection.close()

    def _describe(self, slot: _Slot) -> tuple[str, McpConnectionView]:
        target = slot.target
        if slot.opening is not None:
            state: McpConnectionState = "starting"
        elif slot.connection is not None and not slot.connection.lost.is_set():
            state = "connected"
        else:
            state = "failed" if slot.reason else "closed"
        left = slot.retry_at - self._now()
        retry_in = left if state == "failed" and left > 0 else None
        shown = McpConnectionView(state, str(target.workspace), slot.reason, slot.calls, retry_in)
        return target.name, shown


class _Unavailable(Exception):
    """The server cannot be used now. The message says why."""


def _import_sdk() -> None:
    """Import what uses the SDK, which takes about a second."""
    import_module("treadle.mcp.connection")


def _add_path_hint(reason: str, target: ServerTarget) -> str:
    """Say which setting shows a file that the program did not find, because its sandbox hides it."""
    for word in target.server.args:  # a program that is not found is named as such
        place = Path(word).expanduser()
        if word in reason and place.is_absolute() and place.exists() and not _is_shown(place, target):
            hint = (
                f"{reason}. Its sandbox hides {place.parent}: add that folder to `readable` of the server's entry"
            )
            return hint if target.approver == "program" else f"{hint} (`treadle mcp add --readable {place.parent}`)"
    return reason


def _is_shown(place: Path, target: ServerTarget) -> bool:
    rights = target.rights
    named = [Path(name).expanduser() for name in (*rights.readable, *rights.writable)]
    folders = named if target.access == "none" else (target.workspace, *named)
    return rights.mode == "off" or any(place.is_relative_to(folder) for folder in folders)


def _add_login_hint(reason: str, target: ServerTarget) -> str:
    """Return why a remote server cannot be used, with the command that signs in if it wants that."""
    if not target.server.is_remote or not any(word in reason for word in ("401", "Unauthorized", "sign-in")):
        return reason
    if target.approver == "program":
        return f"{reason}. Give a token in `headers` of the server's entry"
    of_agent = f" --agent {target.owner}" if target.owner else ""
    return f"{reason}. Sign in: treadle mcp login {target.name}{of_agent}"


def _consume_error(task: "asyncio.Task[ServerConnection]") -> None:
    if not task.cancelled():
        task.exception()
