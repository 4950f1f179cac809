"""`treadle mcp serve`: every tool, resource and prompt, alone and while another process serves the home, with the
official SDK's client as the oracle."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from mcp import Client, MCPError, StdioServerParameters
from tests.fake_endpoint import Behaviour, FakeEndpoint, Silence, says
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import COMMAND, Shell
from treadle.skills.inventory import SkillInventory


def answer(request: Any) -> Behaviour:
    """Answer every message but one that asks for silence."""
    return Silence() if "Say nothing." in str(request) else says("Done.")


@asynccontextmanager
async def connect(situation: str, tmp_path: Path) -> AsyncGenerator[Client]:
    """Connect to `treadle mcp serve`, which owns the home or is attached to the process that does."""
    async with FakeEndpoint(policy=answer) as endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure()
        approve_skill(tmp_path / "home")
        serving = Serving(shell) if situation == "attached" else None
        if serving is not None:
            await asyncio.to_thread(serving.start)
        try:
            server = StdioServerParameters(command=str(COMMAND), args=["mcp", "serve"], env=shell.environment)
            async with Client(server) as client:
                yield client
        finally:
            if serving is not None:
                await asyncio.to_thread(serving.stop)


def approve_skill(home: Path) -> None:
    folder = home / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nRun the tests.\n")
    inventory = SkillInventory(home)
    found, content = inventory.find("deploy")
    assert content is not None
    inventory.approve(found, content)


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a tool that succeeds."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content


async def read(client: Client, uri: str) -> Any:
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return json.loads(content.text)


@pytest.mark.parametrize("situation", ["alone", "attached"])
async def test_tools_resources_and_prompts_are_those_of_the_home(situation: str, tmp_path: Path) -> None:
    async with connect(situation, tmp_path) as client:
        await check_tools(client)
        await check_cancelled_run(client)
        await check_resources_and_prompts(client)
        await check_errors(client)
        await check_cancelled_call(client)


async def check_tools(client: Client) -> None:
    """Every tool works."""
    listed = {tool.name for tool in (await client.list_tools()).tools}
    assert listed == {"default", "start_run", "get_run", "cancel_run"}
    told: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    answered = await client.call_tool("default", {"message": "Go."}, progress_callback=note)
    assert [block.text for block in answered.content if isinstance(block, types.TextContent)] == ["Done."]
    assert "step 1" in told
    assert answered.structured_content is not None
    session: str = answered.structured_content["session_id"]
    again = await call(client, "default", message="Again.", session_id=session)
    assert (again["session_id"], again["text"]) == (session, "Done.")
    started = await call(client, "start_run", agent="default", message="Go.")
    ended = await call(client, "get_run", run_id=started["run_id"], wait=60)
    assert (ended["outcome"], ended["text"]) == ("completed", "Done.")


async def check_cancelled_run(client: Client) -> None:
    """A cancelled run is an answer of `get_run`, not an error."""
    started = await call(client, "start_run", agent="default", message="Say nothing.")
    assert started["outcome"] is None
    assert (await call(client, "get_run", run_id=started["run_id"]))["outcome"] is None
    assert (await call(client, "cancel_run", run_id=started["run_id"]))["outcome"] == "cancelled"
    shown = await call(client, "get_run", run_id=started["run_id"], wait=60)
    assert (shown["status"], shown["outcome"]) == ("cancelled", "cancelled")
    assert (await client.call_tool("cancel_run", {"run_id": started["run_id"]})).is_error


async def check_resources_and_prompts(client: Client) -> None:
    """Every resource and prompt can be read."""
    done = await call(client, "default", message="Go.")
    run, session = f"treadle://runs/{done['run_id']}", f"treadle://sessions/{done['session_id']}"
    assert {run, session} <= {str(each.uri) for each in (await client.list_resources()).resources}
    templates = (await client.list_resource_templates()).resource_templates
    assert {each.uri_template for each in templates} == {"treadle://runs/{id}", "treadle://sessions/{id}"}
    assert (await read(client, run))["result"]["text"] == "Done."
    shown = await read(client, session)
    assert shown["session"]["session_id"] == done["session_id"]
    assert [each["result"]["text"] for each in shown["runs"]] == ["Done."]
    for unknown in ("treadle://runs/run_0", "treadle://sessions/ses_0", "treadle://agents/default"):
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource(unknown)
    [prompt] = (await client.list_prompts()).prompts
    assert (prompt.name, prompt.description) == ("deploy", "How to deploy.")
    [message] = (await client.get_prompt("deploy")).messages
    assert isinstance(message.content, types.TextContent)
    assert "Run the tests." in message.content.text


async def check_errors(client: Client) -> None:
    """What cannot be done is an error that says why."""
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("get_run", {"run_id": "run_0"}, "run_0"),
        ("cancel_run", {"run_id": "run_0"}, "run_0"),
        ("get_run", {}, "`run_id` is missing"),
        ("start_run", {"agent": "nobody", "message": "Go."}, "no agent `nobody`"),
        ("default", {"message": ""}, "`message` is missing"),
    ]
    for name, arguments, told in wrong:
        result = await client.call_tool(name, arguments)
        assert result.is_error
        assert told in str(result.content), (name, result.content)
    with pytest.raises(MCPError, match="Unknown tool"):
        await client.call_tool("nobody", {"message": "Go."})


async def check_cancelled_call(client: Client) -> None:
    """A call that the client cancels cancels its run."""
    before = {each.name for each in (await client.list_resources()).resources}
    calling = asyncio.create_task(client.call_tool("default", {"message": "Say nothing."}))
    begun: set[str] = set()
    while not begun:
        listed = (await client.list_resources()).resources
        begun = {each.name for each in listed if each.name.startswith("run_")} - before
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    [run_id] = begun
    assert (await call(client, "get_run", run_id=run_id, wait=60))["outcome"] == "cancelled"
