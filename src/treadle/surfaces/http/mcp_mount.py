"""`/mcp` of the service: the MCP server over streamable HTTP, behind the same tokens as the HTTP API.

The SDK is imported, in a thread, with the first request."""

import asyncio
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.domain.access import Principal
from treadle.domain.version import VERSION
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.auth import get_state, send_problem
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.siblings import Siblings
from treadle.surfaces.mcp.backend import McpBackend
from treadle.surfaces.mcp.skill_prompts import list_skill_prompts

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
MAX_SESSIONS = 1000
IDLE_SECONDS = 1800.0
MISSING = "The MCP server needs the extra `mcp`: pip install 'treadle[mcp]'"


class McpMount:
    """ASGI application that serves `/mcp`, and passes every other request on."""

    def __init__(self, app: ASGIApp, context: Context, home: Path | None) -> None:
        self.siblings: Siblings | None = None
        """The processes behind the same port, one of which has each session."""
        self._app = app
        self._context = context
        self._home = home
        self._starting: asyncio.Task[StreamableHTTPSessionManager] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH or self._home is None:
            await self._app(scope, receive, send)
            return
        if find_spec("mcp") is None:
            await send_problem(Refusal(501, "NotInstalled", MISSING), scope, send)
            return
        if self.siblings is not None:
            if (owner := self.siblings.find_session_owner(scope)) is not None:
                await self.siblings.forward(owner, scope, receive, send)
                return
            send = self.siblings.mark_session(send)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        state = get_state(scope)
        streams: OpenStreams = state["streams"]
        principal: Principal = state["principal"]
        if not streams.try_count(principal):
            await send_problem(Refusal(429, "TooManyStreams", streams.limit_message), scope, send)
            return
        try:
            manager = await asyncio.shield(self._starting)
            await self._answer(manager, scope, receive, send)
        finally:
            streams.uncount(principal)

    async def _answer(
        self, manager: "StreamableHTTPSessionManager", scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request, which may be a stream. It ends when its token is revoked or expires."""
        answering = asyncio.ensure_future(manager.asgi_app(_add_user(scope), receive, send))
        try:
            with get_state(scope)["hold"](answering.cancel):
                await asyncio.wait([answering])
        finally:
            answering.cancel()
            await asyncio.wait([answering])
        if not answering.cancelled():
            answering.result()

    async def close(self) -> None:
        """End all sessions."""
        self._closing.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def _start(self) -> "StreamableHTTPSessionManager":
        await asyncio.to_thread(_import_sdk)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        manager = StreamableHTTPSessionManager(
            self.make_server(), session_idle_timeout=IDLE_SECONDS, max_sessions=MAX_SESSIONS
        )
        is_running = asyncio.Event()
        self._owner = asyncio.create_task(self._run_manager(manager, is_running))
        await is_running.wait()
        return manager

    def make_server(self) -> "Server[Any]":
        """Return the server that answers, which offers the agents of the home."""
        from treadle.surfaces.mcp.server import AgentServer

        return AgentServer(self._find_backend, VERSION).server

    async def _run_manager(self, manager: "StreamableHTTPSessionManager", is_running: asyncio.Event) -> None:
        async with manager.run():
            is_running.set()
            await self._closing.wait()

    def _find_backend(self, request: Any) -> McpBackend:
        """Return the backend of the token that a request was made with."""
        principal = get_state(request.request.scope)["principal"]
        home = self._home
        assert home is not None
        context = self._context.for_caller(principal, None)
        return McpBackend(LocalCaller(context), principal, context.agents.names, lambda: list_skill_prompts(home))


def _import_sdk() -> None:
    """Import what uses the SDK, which takes about a second."""
    import_module("treadle.surfaces.mcp.server")


def _add_user(scope: Scope) -> Scope:
    """Return the scope with the caller as the SDK knows it, which refuses a session of another caller."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    state = get_state(scope)
    principal = state["principal"]
    token = sha256(str(state.get("secret", "")).encode()).hexdigest()
    caller = AuthenticatedUser(AccessToken(token=token, client_id=str(principal.token_id), scopes=[]))
    return {**scope, "user": caller}
