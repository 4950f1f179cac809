"""Sign-ins to remote servers: in a browser, kept in the vault, refreshed, revoked; addresses that are refused."""

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.mcp.homes import write_home
from treadle.config.home import Home
from treadle.domain.mcp_servers import McpServerSettings, OAuthSettings
from treadle.home.mcp_admin import inspect_server
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import find_entry
from treadle.mcp.oauth import CallbackListener, Login, VaultStorage, is_private_host
from treadle.ports.tool import ToolError
from treadle.vault.store import VaultStore


class SignInServer:
    """A protected MCP server and its authorization server."""

    def __init__(self) -> None:
        self.url = ""
        self.challenge = ""
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.grants: list[str] = []
        self.metadata_url = ""
        """Where the server says that its metadata is; empty for the right place."""

    def issue(self) -> web.Response:
        number = len(self.grants)
        access, refresh = f"access-token-{number}", f"refresh-token-{number}"
        self.access, self.refresh = {access}, {refresh}
        token = {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh}
        return web.json_response(token)

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        grant = str(form["grant_type"])
        if grant == "authorization_code":
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != self.challenge:
                return web.json_response({"error": "invalid_grant"}, status=400)
        elif str(form["refresh_token"]) not in self.refresh:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.grants.append(grant)
        return self.issue()

    async def authorize(self, request: web.Request) -> web.Response:
        query = request.query
        self.challenge = query["code_challenge"]
        assert query["code_challenge_method"] == "S256"
        assert query["resource"] == f"{self.url}/mcp"
        raise web.HTTPFound(f"{query['redirect_uri']}?code=abc&state={query['state']}")

    async def register(self, request: web.Request) -> web.Response:
        return web.json_response({**(await request.json()), "client_id": "registered"}, status=201)

    async def mcp(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.access:
            where = self.metadata_url or f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return web.Response(status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{where}"'})
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        }
        if message["method"] not in results:
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})

    async def resource(self, request: web.Request) -> web.Response:
        return web.json_response({"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})

    async def metadata(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )


@asynccontextmanager
async def sign_in_server() -> AsyncGenerator[SignInServer]:
    server, app = SignInServer(), web.Application()
    app.router.add_get("/.well-known/oauth-protected-resource/mcp", server.resource)
    app.router.add_get("/.well-known/oauth-authorization-server", server.metadata)
    app.router.add_get("/authorize", server.authorize)
    app.router.add_post("/token", server.token)
    app.router.add_post("/register", server.register)
    app.router.add_route("*", "/mcp", server.mcp)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def open_in_browser(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        assert "signed in" in await response.text()


def read_vault(home: Path) -> dict[str, str]:
    with closing(VaultStore(home, os.environ)) as store:
        return dict(store.read().values)


async def test_a_sign_in_is_kept_in_the_vault_refreshed_and_can_expire(tmp_path: Path) -> None:
    async with sign_in_server() as server:
        home = Home(write_home(tmp_path / "home", remote=McpServerSettings(url=f"{server.url}/mcp")))
        entry = find_entry(home, "remote")
        with pytest.raises(ToolError, match=r"Sign in: treadle mcp login remote"):
            await inspect_server(HomeApprovals(home), entry)
        found = await inspect_server(HomeApprovals(home), entry, open_in_browser)
        assert [tool["name"] for tool in found.tools] == ["echo"]
        vault = read_vault(home.path)
        assert sorted(name.split("_")[-1] for name in vault)[-2:] == ["ACCESS", "REFRESH"]
        assert "access-token-1" in vault.values()  # a secret of its own, so that it is redacted everywhere
        assert (await inspect_server(HomeApprovals(home), entry)).tools == found.tools
        assert server.grants == ["authorization_code"]
        [name] = [name for name in vault if not name.endswith(("_ACCESS", "_REFRESH"))]
        with closing(VaultStore(home.path, os.environ)) as store:
            store.put(name, json.dumps({**json.loads(vault[name]), "expires_at": 1.0}), forced=True)
        assert (await inspect_server(HomeApprovals(home), entry)).tools == found.tools
        assert server.grants == ["authorization_code", "refresh_token"]
        server.access.clear()
        with pytest.raises(ToolError, match=r"Sign in: treadle mcp login remote"):
            await inspect_server(HomeApprovals(home), entry)


def test_a_server_cannot_send_a_sign_in_to_other_addresses(tmp_path: Path) -> None:
    class Memory:
        def read(self, name: str) -> str | None:
            return None

        def write(self, name: str, value: str) -> None:
            raise AssertionError

    settings = OAuthSettings()
    url = "https://mcp.example.com/mcp"
    login = Login(url, settings, VaultStorage(Memory(), "X", url, settings))
    check = login._check_address  # pyright: ignore[reportPrivateUsage]
    check("https://auth.example.com/token")
    for address in (
        "http://auth.example.com/token",
        "https://127.0.0.1/token",
        "https://169.254.169.254/latest",
        "https://[::1]/x",
        "https://10.0.0.1/",
        "https://localhost/",
        "file:///etc/passwd",
    ):
        with pytest.raises(Exception, match="not acceptable"):
            check(address)
    assert not is_private_host("example.com")


async def test_the_listener_accepts_only_the_expected_answer() -> None:
    listener = CallbackListener()
    await listener.start()
    base = f"http://127.0.0.1:{listener.port}"
    listener.expect("https://auth.example.com/authorize?state=right")
    async with aiohttp.ClientSession() as http:
        statuses: list[int] = []
        for path in ("/", "/callback?code=x&state=wrong", "/callback?code=x", "/callback?code=abc&state=right"):
            async with http.get(base + path) as response:
                statuses.append(response.status)
        assert statuses == [404, 400, 400, 200]
    assert (await listener.wait()).code == "abc"
    await listener.close()


async def test_a_denied_sign_in_is_reported() -> None:
    listener = CallbackListener()
    await listener.start()
    listener.expect("https://auth.example.com/authorize?state=s")
    async with aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{listener.port}/callback?error=access_denied&state=s"
        async with http.get(url) as response:
            assert response.status == 400
    with pytest.raises(PermissionError, match="access_denied"):
        await asyncio.wait_for(listener.wait(), 10)
    await listener.close()
