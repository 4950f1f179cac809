"""One connection to an MCP server. A task of its own opens it, keeps it and closes it.

This module imports the SDK. Import it only where a server is used."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl, ValidationError

from treadle.domain.limits import (
    MAX_MCP_CURSOR_CHARACTERS,
    MAX_MCP_PAGES,
    MAX_MCP_TITLE_CHARACTERS,
    MAX_MCP_TOOLS,
)
from treadle.domain.mcp_servers import McpPrompt, McpPromptMessage
from treadle.mcp.elicitation import ask_person
from treadle.mcp.messages import cut
from treadle.mcp.pins import hash_tool
from treadle.mcp.results import make_observation, make_prompt, make_prompt_message
from treadle.mcp.transports import RunningServer, Transport
from treadle.ports.tool import Observation, ToolContext, ToolError

LOST = frozenset(((types.INVALID_REQUEST, "Session terminated"), (types.CONNECTION_CLOSED, "Connection closed")))
"""Codes and messages of the errors with which the client library reports a lost connection. Servers use the same
codes for other errors."""
OUTCOME_UNKNOWN = "The call was started, and whether it took effect is not known. Check before you do it again."

_Result = TypeVar("_Result")

log = logging.getLogger("treadle.mcp")
_current_call: ContextVar[ToolContext | None] = ContextVar("current_mcp_call", default=None)


class ConnectionFailed(Exception):
    """The server could not be started or reached. The message says why."""


class ServerConnection:
    """An open connection. `lost` is set when it can no longer be used."""

    def __init__(
        self, name: str, transport: Transport, server: RunningServer, version: str, root: Path | None = None
    ) -> None:
        """`root` is the folder that the server is told to work in, None to tell it nothing."""
        self.name = name
        self._root = root
        self.lost = asyncio.Event()
        self.reason = ""
        """Why it was lost."""
        self.active = 0
        """Calls in progress."""
        self._transport = transport
        self._server = server
        self._client = Client(
            transport,
            elicitation_callback=self._elicit,
            list_roots_callback=None if root is None else self._list_roots,
            message_handler=self._handle_notification,
            client_info=types.Implementation(name="treadle", version=version),
            cache=None,
        )
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._relisting: asyncio.Task[None] | None = None
        self._hashes: dict[str, str] = {}
        self._calls: list[ToolContext] = []

    # ── Life ──

    async def open(self, timeout: float) -> None:
        """Connect and list the tools within this many seconds. Raise ConnectionFailed."""
        self._owner = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise ConnectionFailed(f"it did not answer within {timeout:g} s{self._describe_errors()}") from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection and stop the program, if there is one."""
        self._closing.set()
        if self._owner is not None:
            if not self._ready.done():
                self._owner.cancel()
            await asyncio.wait([self._owner])

    async def _run(self) -> None:
        try:
            async with self._client:
                await self._list_tools()
                watching = asyncio.create_task(self._watch_lists())
                try:
                    self._ready.set_result(None)
                    await _wait_first(self._closing, self._server.ended)
                finally:
                    watching.cancel()
                    await asyncio.wait([watching])
        except asyncio.CancelledError:
            if not self._closing.is_set():
                raise
        except BaseException as error:
            self.reason = _describe(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._end()

    def _end(self) -> None:
        ended = "" if self._closing.is_set() else self._describe_end()
        self.reason = ended or self.reason
        self.lost.set()
        if not self._ready.done():
            self._ready.set_exception(ConnectionFailed(self.reason or "it was closed"))
            self._ready.exception()  # retrieved, should no one wait any more

    def _describe_end(self) -> str:
        if self._server.fault is not None:
            return self._server.fault
        if self._server.exit_code is not None:
            return f"it ended with exit code {self._server.exit_code}{self._describe_errors()}"
        if self.reason:
            return self.reason + self._describe_errors()
        return f"it ended{self._describe_errors()}"

    def _describe_errors(self) -> str:
        lines = [line.strip() for line in self._server.errors.splitlines() if line.strip()]
        return f" ({lines[-1][:300]})" if lines else ""

    # ── Tools ──

    @property
    def tools(self) -> Mapping[str, dict[str, Any]]:
        """The raw objects of the server's tools, by name."""
        return self._server.tools

    @property
    def title(self) -> str:
        """How the server names itself, with its version."""
        info = self._client.server_info
        return "" if info is None else cut(f"{info.name} {info.version}".strip(), MAX_MCP_TITLE_CHARACTERS)

    @property
    def protocol(self) -> str:
        return str(self._client.protocol_version)

    def hash_tool(self, name: str) -> str | None:
        """Return the hash of the raw object of a tool as the server lists it now, or None."""
        if (raw := self._server.tools.get(name)) is None:
            return None
        if (known := self._hashes.get(name)) is None:
            known = self._hashes[name] = hash_tool(raw)
        return known

    async def _list_tools(self) -> None:
        capabilities = self._client.server_capabilities
        if capabilities.tools is None:
            return
        before = self._server.tools
        self._server.tools = {}
        cursor: str | None = None
        valid: set[str] = set()
        cursors: set[str] = set()
        try:
            for _ in range(MAX_MCP_PAGES):
                page = await self._client.list_tools(cursor=cursor)
                valid |= {tool.name for tool in page.tools}
                cursor = page.next_cursor
                if cursor is None or cursor in cursors or len(self._server.tools) > MAX_MCP_TOOLS:
                    break
                if len(cursor) > MAX_MCP_CURSOR_CHARACTERS:
                    raise ConnectionFailed(f"it sent a cursor of more than {MAX_MCP_CURSOR_CHARACTERS} characters")
                cursors.add(cursor)
        except BaseException:
            self._server.tools = before
            raise
        # The SDK leaves out tools that break the protocol, for example with invalid header names.
        listed = {name: raw for name, raw in self._server.tools.items() if name in valid}
        self._server.tools = dict(islice(listed.items(), MAX_MCP_TOOLS))
        if len(listed) > MAX_MCP_TOOLS or cursor is not None:
            log.warning("the MCP server %s lists too many tools; %d are used", self.name, len(self._server.tools))
        self._hashes = {}

    async def _handle_notification(self, message: Any) -> None:
        """Handle a notification: list the tools again if the server says that they have changed."""
        if isinstance(message, types.ToolListChangedNotification):
            self._relist()

    def _relist(self) -> None:
        if self._relisting is None or self._relisting.done():
            self._relisting = asyncio.create_task(self._relist_quietly())

    async def _relist_quietly(self) -> None:
        with suppress(Exception):
            await self._list_tools()

    async def _watch_lists(self) -> None:
        """Subscribe to changes of the tool list, where the protocol has subscriptions."""
        capabilities = self._client.server_capabilities.tools
        if self.protocol < "2026" or capabilities is None or not capabilities.list_changed:
            return
        with suppress(Exception):
            async with self._client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self._relist()

    # ── Calls ──

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> Observation:
        """Call a tool. Raise ToolError if the server refuses, breaks the protocol or ends."""
        if self._relisting is not None and not self._relisting.done():
            await asyncio.wait([self._relisting])
        token = _current_call.set(context)
        self.active += 1
        self._calls.append(context)
        try:
            result = await self._client.call_tool(
                tool, arguments, progress_callback=_make_progress(context), read_timeout_seconds=None
            )
            return make_observation(result)
        except MCPError as error:
            if (error.code, error.message) in LOST or self.lost.is_set() or self._server.ended.is_set():
                raise ToolError(await self._explain_loss()) from None
            raise ToolError(f"the MCP server `{self.name}` answered with an error: {error.message}") from None
        except ValidationError:
            raise ToolError(f"the MCP server `{self.name}` sent a result that breaks the protocol.") from None
        except RuntimeError as error:
            raise ToolError(f"the MCP server `{self.name}` sent an invalid result: {error}") from None
        finally:
            self._calls.remove(context)
            self.active -= 1
            _current_call.reset(token)

    async def list_prompts(self) -> list[McpPrompt]:
        """Return the prompts of the server. Raise ToolError if it refuses or ends."""
        if self._client.server_capabilities.prompts is None:
            return []
        found: list[McpPrompt] = []
        cursor: str | None = None
        for _ in range(MAX_MCP_PAGES):
            page = await self._request(self._client.list_prompts(cursor=cursor))
            found += [make_prompt(self.name, prompt) for prompt in page.prompts]
            cursor = page.next_cursor
            if cursor is None or len(found) > MAX_MCP_TOOLS:
                break
        return found[:MAX_MCP_TOOLS]

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> McpPromptMessage:
        """Return a prompt as a message. Raise ToolError if the server refuses or ends."""
        return make_prompt_message(await self._request(self._client.get_prompt(name, arguments or None)))

    async def _request(self, request: Awaitable[_Result]) -> _Result:
        self.active += 1
        try:
            return await request
        except MCPError as error:
            raise ToolError(f"the MCP server `{self.name}` answered with an error: {error.message}") from None
        except (ValidationError, RuntimeError) as error:
            raise ToolError(f"the MCP server `{self.name}` sent an invalid result: {_describe(error)}") from None
        finally:
            self.active -= 1

    async def _explain_loss(self) -> str:
        """Close the connection and say why it was lost during a call."""
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                if not self._server.ended.is_set():
                    self._server.ended.set()
                await self.lost.wait()
        reason = self.reason or "the connection was lost"
        return f"the MCP server `{self.name}` was lost during the call: {reason}. {OUTCOME_UNKNOWN}"

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the user of the call. A request that cannot be assigned to one run is declined."""
        call = _current_call.get()
        if call is None:
            runs = {each.run_id for each in self._calls}
            call = self._calls[-1] if len(runs) == 1 else None
        if call is None:
            return types.ElicitResult(action="decline")
        return await ask_person(self.name, params, call)

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        roots = [] if self._root is None else [types.Root(uri=FileUrl(self._root.as_uri()), name=self._root.name)]
        return types.ListRootsResult(roots=roots)


async def _wait_first(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _make_progress(context: ToolContext) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        context.progress(f"{share} {cut(message)}\n" if message else f"{share}\n")

    return report


def _describe(error: BaseException) -> str:
    """Return the cause of an error, in one line. Groups of errors are reduced to their first member."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    text = " ".join(str(error).split())[:500].rstrip(".")
    return text or type(error).__name__
