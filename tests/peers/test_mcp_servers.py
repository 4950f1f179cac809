"""MCP servers of others, each with real calls through the engine and the sandbox.

`make peers` installs them and runs this; what is not installed is skipped."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.homes import make_agent, needs_sandbox, open_engine, write_home
from tests.mcp.test_calls import results
from tests.surfaces.http.test_access import in_time
from treadle.bootstrap.mcp_admin import approve_server, inspect_server
from treadle.bootstrap.mcp_entries import find_entry
from treadle.config.home import Home
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.domain.mcp_servers import McpServer
from treadle.testing.models import ask, call, say

PEERS = Path(__file__).parents[2] / ".peers"
PYTHON_SERVERS, NODE_SERVERS = PEERS / "mcp" / "bin", PEERS / "node_modules" / "@modelcontextprotocol"
NODE = shutil.which("node") or "node"

pytestmark = needs_sandbox


def python_server(name: str, *arguments: str, **settings: Any) -> McpServer:
    path = PYTHON_SERVERS / name
    if not path.exists():
        pytest.skip(f"{name} is not installed; `make peers` does that")
    return McpServer(command=str(path), args=arguments, readable=(str(PEERS / "mcp"),), **settings)


def node_server(name: str, *arguments: str, **settings: Any) -> McpServer:
    path = NODE_SERVERS / name / "dist" / "index.js"
    if not path.exists():
        pytest.skip(f"{name} is not installed; `make peers` does that")
    readable = (str(PEERS / "node_modules"),)
    return McpServer(command=NODE, args=(str(path), *arguments), readable=readable, **settings)


def use(tmp_path: Path, server: McpServer, *calls: tuple[str, dict[str, Any]]) -> list[ToolCallEnd | ToolCallError]:
    """Approve a server as it is, and return the results of these calls."""
    found: list[ToolCallEnd | ToolCallError] = []
    workspace = tmp_path / "w"
    workspace.mkdir(exist_ok=True)

    async def perform() -> None:
        home = Home(write_home(tmp_path / "home", s=server))
        entry = find_entry(home, "s")
        approve_server(home, entry, await inspect_server(home, entry))
        steps = [ask(call(f"s__{name}", **arguments)) for name, arguments in calls]
        async with open_engine(home.path, *steps, say("Done.")) as engine:
            agent = make_agent(workspace)
            found.extend(results([event async for event in engine.stream(agent, "Go.")]))

    in_time(perform())
    return found


def test_the_time_server_tells_the_time_and_reports_errors(tmp_path: Path) -> None:
    [told, wrong] = use(
        tmp_path,
        python_server("mcp-server-time", "--local-timezone", "UTC"),
        ("get_current_time", {"timezone": "Asia/Tokyo"}),
        ("get_current_time", {"timezone": "Nowhere/Here"}),
    )
    assert json.loads(told.content)["timezone"] == "Asia/Tokyo"
    assert isinstance(wrong, ToolCallError)


def test_the_git_server_shows_the_status(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (workspace / "new.txt").write_text("x")
    [status] = use(tmp_path, python_server("mcp-server-git"), ("git_status", {"repo_path": str(workspace)}))
    assert "new.txt" in status.content


def test_the_filesystem_server_stays_in_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "outside.txt").write_text("private")
    written, listed, outside = use(
        tmp_path,
        node_server("server-filesystem", "."),
        ("write_file", {"path": str(workspace / "a.txt"), "content": "hello"}),
        ("list_directory", {"path": str(workspace)}),
        ("read_text_file", {"path": str(tmp_path / "outside.txt")}),
    )
    assert isinstance(written, ToolCallEnd)
    assert (workspace / "a.txt").read_text() == "hello"
    assert "a.txt" in listed.content
    assert isinstance(outside, ToolCallError)


def test_the_memory_server_stores_and_reads_entities(tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes looms"]}
    server = node_server("server-memory", env={"MEMORY_FILE_PATH": str(tmp_path / "w" / "memory.jsonl")})
    created, read = use(tmp_path, server, ("create_entities", {"entities": [entity]}), ("read_graph", {}))
    assert isinstance(created, ToolCallEnd)
    assert "likes looms" in read.content
    assert "Ada" in (tmp_path / "w" / "memory.jsonl").read_text()


def test_the_everything_server_returns_text_images_and_structures(tmp_path: Path) -> None:
    echo, total, image, structured = use(
        tmp_path,
        node_server("server-everything"),
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "New York"}),
    )
    assert "hello" in echo.content
    assert "5" in total.content
    assert isinstance(image, ToolCallEnd)
    assert image.images
    assert isinstance(structured, ToolCallEnd)
    assert "temperature" in structured.content
