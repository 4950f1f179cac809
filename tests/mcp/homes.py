"""Homes with approved MCP servers, and engines on them."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import McpServerSettings
from treadle.mcp.pins import Pin, PinFolder, hash_entry
from treadle.telemetry.settings import Telemetry
from treadle.testing.models import ScriptedModel, ScriptStep

SERVERS = Path(__file__).parent / "servers"
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
needs_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def read_tools(script: str = "plain.py") -> list[dict[str, Any]]:
    """Return the tools that a server script lists, from its source."""
    scope: dict[str, Any] = {}
    source = (SERVERS / script).read_text()
    start = source.index("TOOLS = ")
    exec(source[start : source.index("\n]\n", start) + 2], scope)
    return scope["TOOLS"]


def make_server(script: str = "plain.py", *arguments: str, **settings: Any) -> McpServerSettings:
    """Return the entry of a server script."""
    return McpServerSettings(
        command=PYTHON, args=(str(SERVERS / script), *arguments), readable=(str(SERVERS),), **settings
    )


def approve(
    home: Path, name: str, server: McpServerSettings, tools: Sequence[dict[str, Any]] | None = None
) -> None:
    """Pin a server as approved."""
    found = read_tools() if tools is None else tools
    PinFolder(home).write(Pin(name, hash_entry(server), tuple(json.loads(json.dumps(found)))))


def write_home(home: Path, **servers: McpServerSettings) -> Path:
    """Create a home with these servers, not approved."""
    home.mkdir(parents=True, exist_ok=True)
    config = {"mcp_servers": msgspec.to_builtins(servers)}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    return home


def make_home(home: Path, **servers: McpServerSettings) -> Path:
    """Create a home with these servers, approved."""
    write_home(home, **servers)
    for name, server in servers.items():
        approve(home, name, server)
    return home


def make_agent(workspace: Path, *tools: str, **settings: Any) -> AgentSpec:
    workspace.mkdir(exist_ok=True)
    return AgentSpec("hero", "scripted/x", tools=tools or ("*__*",), workspace=str(workspace), **settings)


def open_engine(home: Path, *steps: ScriptStep, metrics: bool = False) -> HostedEngine:
    engine = create_engine(home=Home(home), telemetry=Telemetry(metrics=True) if metrics else None)
    engine.add_model("scripted", ScriptedModel(*steps))
    return engine
