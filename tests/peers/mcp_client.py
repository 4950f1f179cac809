"""The client that the MCP conformance suite drives: Treadle's connections and sign-ins, without an engine.

The suite appends the address of its server to the command, and names the scenario in the environment."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult

from treadle.domain.ids import RunId, SessionId
from treadle.domain.mcp_servers import McpServerSettings, OAuthSettings
from treadle.mcp.oauth import Login, VaultStorage
from treadle.mcp.pool import ServerPool
from treadle.mcp.server_target import ServerTarget
from treadle.ports.sandbox import Program, RunningProgram, WritableCode
from treadle.ports.tool import ToolContext, ToolError

REDIRECT_URI = "http://localhost:3000/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"


class Secrets:
    """Implements `mcp.oauth.LoginStore` in memory."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        return self.values.get(name)

    def write(self, name: str, value: str) -> None:
        self.values[name] = value


class Browser:
    """Opens the address of a sign-in and returns at once with the code, as a user would."""

    def __init__(self) -> None:
        self._query: dict[str, str] = {}

    async def show(self, url: str) -> None:
        async with httpx2.AsyncClient() as http:
            response = await http.get(url)
            location = response.headers["location"]
        found = parse_qs(urlsplit(urljoin(url, location)).query)
        self._query = {name: values[0] for name, values in found.items()}

    async def wait(self) -> AuthorizationCodeResult:
        query = self._query
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


class Credentials:
    """Implements `mcp.pool.Credentials`: signs in when the server asks for it."""

    def __init__(self, context: dict[str, Any]) -> None:
        self._context = context
        self._browser = Browser()
        self._secrets = Secrets()

    def reveal(self, name: str) -> str | None:
        return self._context.get(name)

    def authenticate(self, target: ServerTarget) -> httpx2.Auth:
        settings = target.server.oauth or OAuthSettings()
        if "client_secret" in self._context:
            self._secrets.write("CLIENT_SECRET", str(self._context["client_secret"]))
        storage = VaultStorage(self._secrets, "LOGIN", target.server.url or "", settings)
        browser, url = self._browser, target.server.url or ""
        return Login(url, settings, storage, REDIRECT_URI, browser.show, browser.wait)


class NoPrograms:
    """Implements `ports.sandbox.Programs`: every server of the suite is remote."""

    async def start(self, program: Program, max_line: int) -> RunningProgram:
        raise AssertionError("the suite has no programs")

    async def find_writable_code(self, program: Program) -> tuple[WritableCode, ...]:
        raise AssertionError("the suite has no programs")

    async def confinement(self) -> Any:
        raise AssertionError("the suite has no programs")


async def answer(question: str, options: tuple[str, ...]) -> str | None:
    """Accept every question with its defaults."""
    return options[0] if options else "{}"


def make_context() -> ToolContext:
    return ToolContext(RunId("run_1"), SessionId("ses_1"), "call_1", "key", lambda text: None, ask=answer)


def make_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that match a schema of the suite."""
    samples: dict[str, Any] = {
        "string": "text",
        "number": 5,
        "integer": 5,
        "boolean": True,
        "array": [],
        "object": {},
    }
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    return {name: samples.get(str(field.get("type")), "text") for name, field in properties.items()}


def list_calls(scenario: str, context: dict[str, Any], tools: Any) -> list[tuple[str, dict[str, Any]]]:
    focal = tools.get("json_schema_2020_12_tool")
    if focal is not None:  # this scenario wants the schema back, as the client has it
        echo = next(name for name in tools if name != focal["name"])
        return [(echo, {"schema": focal["inputSchema"]})]
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    return [(name, make_arguments(tool.get("inputSchema") or {})) for name, tool in tools.items()]


def make_settings(context: dict[str, Any]) -> OAuthSettings:
    if "client_id" not in context:
        return OAuthSettings(client_metadata_url=METADATA_URL)
    secret = "{{vault:CLIENT_SECRET}}" if "client_secret" in context else None
    return OAuthSettings(client_id=context["client_id"], client_secret=secret)


async def main() -> int:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    server = McpServerSettings(url=sys.argv[-1], timeout=30.0, start_timeout=20.0, oauth=make_settings(context))
    pool = ServerPool(NoPrograms(), Credentials(context), "0")
    target = ServerTarget("suite", server, Path("/"))
    try:
        connection, _ = await pool.connect(target)
        for name, arguments in list_calls(scenario, context, dict(connection.tools)):
            try:
                print(name, (await connection.call(name, arguments, make_context())).content[:200])
            except ToolError as error:
                print(name, "failed:", error)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        await pool.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
