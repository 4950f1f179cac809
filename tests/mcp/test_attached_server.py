"""`treadle mcp serve` while another process serves the home, with the official SDK's client as the oracle."""

import asyncio
import json
from pathlib import Path

import mcp_types as types

from mcp import Client, StdioServerParameters
from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import COMMAND, Shell


async def test_an_agent_answers_through_the_process_that_owns_the_home(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda request: says("Done.")) as endpoint:
        shell = Shell(tmp_path / "home", endpoint.url).configure()
        serving = Serving(shell)
        await asyncio.to_thread(serving.start)
        try:
            server = StdioServerParameters(command=str(COMMAND), args=["mcp", "serve"], env=shell.environment)
            async with Client(server) as client:
                await check_calls(client)
        finally:
            await asyncio.to_thread(serving.stop)


async def check_calls(client: Client) -> None:
    """Check an agent that is called, a run that is started and looked up, and the resources that they leave."""
    answered = await client.call_tool("default", {"message": "Go."})
    assert [block.text for block in answered.content if isinstance(block, types.TextContent)] == ["Done."]
    assert answered.structured_content is not None
    started = await client.call_tool("start_run", {"agent": "default", "message": "Go."})
    assert started.structured_content is not None
    ended = await client.call_tool("get_run", {"run_id": started.structured_content["run_id"], "wait": 60})
    assert (ended.structured_content or {})["outcome"] == "completed"
    listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
    session = f"treadle://sessions/{answered.structured_content['session_id']}"
    assert session in listed
    [content] = (await client.read_resource(session)).contents
    assert isinstance(content, types.TextResourceContents)
    assert [run["result"]["text"] for run in json.loads(content.text)["runs"]] == ["Done."]
