"""Treadle's own MCP server for the conformance suite, which cannot send a token: one is added to its requests."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from mcp.server.lowlevel import Server

from tests.peers.mcp_fixtures import FixtureServer
from tests.surfaces.http.served_home import serve_home
from treadle.surfaces.http.auth import LOOPBACK_HOSTS, TokenAuthentication
from treadle.surfaces.http.mcp_mount import McpMount
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.server import bind_socket, serve_sockets


class FixtureMount(McpMount):
    """Our mount with the suite's fixtures instead of agents."""

    def make_server(self) -> Server[Any]:
        return FixtureServer().server


class AddToken:
    """ASGI middleware that adds a token to requests without one."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = cast("list[tuple[bytes, bytes]]", scope.get("headers") or [])
        if not any(name == b"authorization" for name, _ in headers):
            scope = {**scope, "headers": [*headers, self._header]}
        await self._app(scope, receive, send)


async def main() -> None:
    with TemporaryDirectory() as folder:
        async with serve_home(Path(folder)) as server:
            run_id = await server.begin("one")
            await server.until(run_id, "completed")
            listener = bind_socket("127.0.0.1", 0)
            mount = server.app.asgi
            if "--fixtures" in sys.argv:
                mount = FixtureMount(mount, server.engine.context, server.home.path)
            guarded = TokenAuthentication(
                mount, OpenStreams(), server.app.access, server.app.sign_ins, LOOPBACK_HOSTS, ()
            )
            async with serve_sockets(AddToken(guarded, server.token), [listener]):
                print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
                await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
