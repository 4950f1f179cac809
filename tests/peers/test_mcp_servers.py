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
from treadle.config.home import Home
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.domain.mcp_servers import Consent, McpServerSettings
from treadle.home.mcp_admin import approve_server, inspect_server
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import find_entry
from treadle.ports.tool import ToolError
from treadle.testing.models import ask, call, say

PEERS = Path(__file__).parents[2] / ".peers"
PYTHON_SERVERS, NODE_SERVERS = PEERS / "mcp" / "bin", PEERS / "node_modules" / "@modelcontextprotocol"
NODE = shutil.which("node") or "node"

pytestmark = needs_sandbox


def python_server(name: str, *arguments: str, **settings: Any) -> McpServerSettings:
    path = PYTHON_SERVERS / name
    if not path.exists():
        pytest.skip(f"{name} is not installed; `make peers` does that")
    return McpServerSettings(command=str(path), args=arguments, readable=(str(PEERS / "mcp"),), **settings)


def node_server(name: str, *arguments: str, **settings: Any) -> McpServerSettings:
    path = NODE_SERVERS / name / "dist" / "index.js"
    if not path.exists():
        pytest.skip(f"{name} is not installed; `make peers` does that")
    readable = (str(PEERS / "node_modules"),)
    return McpServerSettings(command=NODE, args=(str(path), *arguments), readable=readable, **settings)


async def use(
    tmp_path: Path, server: McpServerSettings, *calls: tuple[str, dict[str, Any]]
) -> list[ToolCallEnd | ToolCallError]:
    """Approve a server as it is, and return the results of these calls."""
    found: list[ToolCallEnd | ToolCallError] = []
    workspace = tmp_path / "w"
    workspace.mkdir(exist_ok=True)

    home = Home(write_home(tmp_path / "home", s=server))
    entry = find_entry(home, "s")
    approve_server(HomeApprovals(home), entry, await inspect_server(HomeApprovals(home), entry))
    steps = [ask(call(f"s__{name}", **arguments)) for name, arguments in calls]
    async with open_engine(home.path, *steps, say("Done.")) as engine:
        agent = make_agent(workspace)
        found.extend(results([event async for event in engine.stream(agent, "Go.")]))
    return found


async def test_the_time_server_tells_the_time_and_reports_errors(tmp_path: Path) -> None:
    [told, wrong] = await use(
        tmp_path,
        python_server("mcp-server-time", "--local-timezone", "UTC"),
        ("get_current_time", {"timezone": "Asia/Tokyo"}),
        ("get_current_time", {"timezone": "Nowhere/Here"}),
    )
    assert json.loads(told.content)["timezone"] == "Asia/Tokyo"
    assert isinstance(wrong, ToolCallError)


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        subprocess.run(["git", "-C", str(folder), "config", name, value], check=True)
    (folder / "new.txt").write_text("x")


async def test_the_git_server_shows_the_status(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    make_repository(workspace)
    (workspace / "json.py").write_text("raise SystemExit('code of the workspace')")
    status, added = await use(
        tmp_path,
        python_server("mcp-server-git"),
        ("git_status", {"repo_path": str(workspace)}),
        ("git_add", {"repo_path": str(workspace), "files": ["new.txt"]}),
    )
    assert "new.txt" in status.content
    assert isinstance(added, ToolCallError), "it reads the workspace by default"


def read_log(workspace: Path) -> str:
    command = ["git", "-C", workspace, "log", "--oneline"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


async def test_the_git_server_commits_if_it_may_write(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    make_repository(workspace)
    added, committed = await use(
        tmp_path,
        python_server("mcp-server-git", workspace="write"),
        ("git_add", {"repo_path": str(workspace), "files": ["new.txt"]}),
        ("git_commit", {"repo_path": str(workspace), "message": "First"}),
    )
    assert isinstance(added, ToolCallEnd), added
    assert isinstance(committed, ToolCallEnd), committed
    assert "First" in read_log(workspace)


async def test_the_filesystem_server_stays_in_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "outside.txt").write_text("private")
    written, listed, outside = await use(
        tmp_path,
        node_server("server-filesystem", "{{workspace}}", workspace="write"),
        ("write_file", {"path": str(workspace / "a.txt"), "content": "hello"}),
        ("list_directory", {"path": str(workspace)}),
        ("read_text_file", {"path": str(tmp_path / "outside.txt")}),
    )
    assert isinstance(written, ToolCallEnd), written
    assert (workspace / "a.txt").read_text() == "hello"
    assert "a.txt" in listed.content
    assert isinstance(outside, ToolCallError)


async def test_the_filesystem_server_only_reads_by_default(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "a.txt").write_text("hello")
    read, written = await use(
        tmp_path,
        node_server("server-filesystem", "{{workspace}}"),
        ("read_text_file", {"path": str(workspace / "a.txt")}),
        ("write_file", {"path": str(workspace / "b.txt"), "content": "x"}),
    )
    assert "hello" in read.content
    assert isinstance(written, ToolCallError)
    assert not (workspace / "b.txt").exists()


def copy_package(name: str, modules: Path) -> None:
    """Copy a package of npm with all packages that it depends on."""
    found = PEERS / "node_modules" / name
    if (modules / name).exists() or not found.exists():  # those of other platforms are not installed
        return
    shutil.copytree(found, modules / name, symlinks=True)
    for package in [found / "package.json", *found.rglob("node_modules/**/package.json")]:
        for other in json.loads(package.read_text()).get("dependencies", ()):
            copy_package(other, modules)


async def test_a_server_in_the_packages_of_a_workspace_runs_only_as_it_was_pinned(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    node_server("server-everything")  # skips the test if it is missing
    copy_package("@modelcontextprotocol/server-everything", workspace / "node_modules")
    script = workspace / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    server = McpServerSettings(command=NODE, args=(str(script),))
    home = Home(write_home(tmp_path / "home", s=server))
    (home.path / "agents" / "hero").mkdir(parents=True)
    (home.path / "agents" / "hero" / "config.yaml").write_text(f"name: hero\nmodel: a/b\nworkspace: {workspace}\n")

    async def call_once() -> ToolCallEnd | ToolCallError:
        async with open_engine(home.path, ask(call("s__echo", message="hello")), say("Done.")) as engine:
            [result] = results([event async for event in engine.stream(make_agent(workspace), "Go.")])
            return result

    with pytest.raises(ToolError, match="pin its content"):
        await inspect_server(HomeApprovals(home), find_entry(home, "s"))
    entry = find_entry(home, "s")
    found = await inspect_server(HomeApprovals(home), entry, consent=Consent(content=True))
    approve_server(HomeApprovals(home), entry, found)
    assert "hello" in (await call_once()).content
    with (script.parent.parent / "node_modules.js").open("w") as planted:
        planted.write("x")
    assert "has changed since it was approved" in (await call_once()).content


async def test_the_memory_server_stores_and_reads_entities(tmp_path: Path) -> None:
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes looms"]}
    env = {"MEMORY_FILE_PATH": "{{workspace}}/memory.jsonl"}
    server = node_server("server-memory", env=env, workspace="write")
    created, read = await use(tmp_path, server, ("create_entities", {"entities": [entity]}), ("read_graph", {}))
    assert isinstance(created, ToolCallEnd)
    assert "likes looms" in read.content
    assert "Ada" in (tmp_path / "w" / "memory.jsonl").read_text()


async def test_the_everything_server_returns_text_images_and_structures(tmp_path: Path) -> None:
    echo, total, image, structured = await use(
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
