"""The MCP server of the service, with the official SDK's client as the oracle."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.fake_endpoint import Silence
from tests.surfaces.http.served_home import Reply, ServedHome, serve_home
from treadle.skills.inventory import SkillInventory


@asynccontextmanager
async def connect(server: ServedHome, token: str, mode: str = "auto") -> AsyncGenerator[Client]:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    async with http, Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client:
        yield client


def names(result: types.ListToolsResult) -> set[str]:
    return {tool.name for tool in result.tools}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_agents_are_tools_that_report_progress_and_answer(tmp_path: Path, mode: str) -> None:
    async with serve_home(tmp_path) as server, connect(server, server.token, mode) as client:
        assert {"one", "two", "start_run", "get_run", "cancel_run"} <= names(await client.list_tools())
        said: list[str | None] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            said.append(message)

        result = await client.call_tool("one", {"message": "Go."}, progress_callback=note)
        assert [block.text for block in result.content if isinstance(block, types.TextContent)] == ["Done."]
        assert result.structured_content["outcome"] == "completed"
        assert "step 1" in said
        again = await client.call_tool(
            "one", {"message": "Again.", "session_id": result.structured_content["session_id"]}
        )
        assert again.structured_content["session_id"] == result.structured_content["session_id"]


async def test_a_long_run_is_started_watched_and_cancelled(tmp_path: Path) -> None:
    async with serve_home(tmp_path, Silence()) as server, connect(server, server.token) as client:
        started = await client.call_tool("start_run", {"agent": "one", "message": "Go."})
        run_id = started.structured_content["run_id"]
        assert started.structured_content["outcome"] is None
        await server.endpoint.asked.wait()
        cancelled = await client.call_tool("cancel_run", {"run_id": run_id})
        assert not cancelled.is_error
        assert cancelled.structured_content["outcome"] == "cancelled"
        ended = await client.call_tool("get_run", {"run_id": run_id, "wait": 60})
        assert not ended.is_error
        assert ended.structured_content["outcome"] == "cancelled"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_cancelled_call_cancels_its_run(tmp_path: Path, mode: str) -> None:
    async with serve_home(tmp_path, Silence()) as server, connect(server, server.token, mode) as client:
        call = asyncio.create_task(client.call_tool("one", {"message": "Go."}))
        await server.endpoint.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        [run] = (await server.ask("GET", "/v1/runs")).json["items"]
        assert (await server.until(run["run_id"], "cancelled"))["outcome"] == "cancelled"


async def test_runs_and_sessions_are_resources(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server, connect(server, server.token) as client:
        done = (await client.call_tool("one", {"message": "Go."})).structured_content
        uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert uris == {f"treadle://runs/{done['run_id']}", f"treadle://sessions/{done['session_id']}"}
        for uri in uris:
            [content] = (await client.read_resource(uri)).contents
            assert isinstance(content, types.TextResourceContents)
            assert "Done." in json.dumps(json.loads(content.text))


async def test_approved_skills_are_prompts(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        home = server.home.path
        for name in ("deploy", "secret-plan"):
            folder = home / "skills" / name
            folder.mkdir(parents=True)
            text = f"---\nname: {name}\ndescription: How to {name}.\n---\nFirst run the tests.\n"
            (folder / "SKILL.md").write_text(text)
        inventory = SkillInventory(home)
        found, content = inventory.find("deploy")
        assert content is not None
        inventory.approve(found, content)
        async with connect(server, await server.mint("read")) as client:
            [prompt] = (await client.list_prompts()).prompts
            assert (prompt.name, prompt.description) == ("deploy", "How to deploy.")
            found = await client.get_prompt("deploy")
            [message] = found.messages
            assert isinstance(message.content, types.TextContent)
            assert "First run the tests." in message.content.text
            with pytest.raises(MCPError, match="Unknown prompt"):
                await client.get_prompt("secret-plan")
            (home / "skills" / "deploy" / "evil.sh").write_text("rm -rf /")
            assert (await client.list_prompts()).prompts == []  # changed since it was approved
        async with connect(server, await server.mint("run")) as client:
            assert (await client.list_prompts()).prompts == []


async def test_agents_and_runs_outside_a_tokens_scope_do_not_exist_for_it(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        foreign = await server.begin("two")
        await server.until(foreign, "completed")
        limited = await server.mint("read", "run", agents=("one",))
        async with connect(server, limited) as client:
            assert "two" not in names(await client.list_tools())
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("two", {"message": "Go."})
            started = await client.call_tool("start_run", {"agent": "two", "message": "Go."})
            assert started.is_error
            missing = await read(client, "treadle://runs/run_0")
            assert await read(client, f"treadle://runs/{foreign}") == missing
            hidden = await client.call_tool("get_run", {"run_id": foreign})
            assert hidden.is_error
            assert (await client.list_prompts()).prompts == []
        async with connect(server, await server.mint("read")) as client:
            assert (await client.list_tools()).tools == []
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("one", {"message": "Go."})
        async with connect(server, await server.mint("run", visibility="own")) as client:
            assert (await client.list_resources()).resources == []
            assert await read(client, f"treadle://runs/{foreign}") == missing
            assert not (await client.call_tool("one", {"message": "Go."})).is_error


async def read(client: Client, uri: str) -> tuple[int, str]:
    """Return the error of reading a resource that does not exist."""
    with pytest.raises(MCPError) as error:
        await client.read_resource(uri)
    return error.value.error.code, error.value.error.message


async def test_mcp_needs_a_token_and_a_session_belongs_to_its_token(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
        accept = {"Accept": "application/json, text/event-stream"}
        assert (await server.ask("POST", "/mcp", hello, token="", **accept)).status == 401
        foreign = await server.ask("POST", "/mcp", hello, Origin="https://evil.example", **accept)
        assert foreign.status == 403
        mine = await server.ask("POST", "/mcp", hello, **accept)
        session = {"Mcp-Session-Id": mine.headers["mcp-session-id"], **accept}
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        other = await server.mint("read", "run")
        assert (await server.ask("POST", "/mcp", listed, token=other, **session)).status == 404
        assert (await server.ask("POST", "/mcp", listed, **session)).status == 200


async def test_calls_in_progress_are_limited_per_token_and_end_when_it_is_revoked(tmp_path: Path) -> None:
    async with serve_home(tmp_path, Silence(), Silence(), streams_per_token=2) as server:
        token = await server.mint("read", "run")
        calls = [asyncio.create_task(_call_agent(server, token)) for _ in range(2)]
        while len(server.endpoint.requests) < 2:  # noqa: ASYNC110 -- the requests of another task
            await asyncio.sleep(0.01)
        refused = await _call_agent(server, token)
        assert (refused.status, refused.problem) == (429, "TooManyStreams")
        assert (await server.ask("GET", "/v1/runs")).status == 200
        [mine] = [each for each in await server.engine.context.access.list() if each.name == "someone"]
        await server.engine.context.access.revoke(mine.token_id)
        for call in calls:
            with suppress(aiohttp.ClientError):  # the connection was closed
                assert b'"result"' not in (await call).body
        assert (await _call_agent(server, token)).status == 401
        for run in (await server.ask("GET", "/v1/runs")).json["items"]:
            await server.ask("POST", f"/v1/runs/{run['run_id']}/cancel")


async def _call_agent(server: ServedHome, token: str) -> Reply:
    """Call an agent in the revision of the protocol that has no sessions."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": INITIALIZE["clientInfo"],
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: dict[str, Any] = {"name": "one", "arguments": {"message": "Go."}, "_meta": meta}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "one",
    }
    return await server.ask("POST", "/mcp", body, token=token, **headers)


INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
