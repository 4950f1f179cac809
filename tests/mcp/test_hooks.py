"""Hooks of installed packages and of agent files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.mcp.homes import needs_sandbox, open_engine, write_home
from tests.surfaces.http.test_access import in_time
from treadle.bootstrap.plugins import list_hook_plugins, load_approved_hooks
from treadle.config.approved_plugins import read_approved_plugins, write_approved_plugins
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.events import HookBlocked, ToolCallEnd
from treadle.domain.hooks import CommandHook
from treadle.testing.models import ask, call, say


@treadle.tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def install(folder: Path, code: str, version: str = "1.0") -> None:
    """Install a package with the hook `guard`."""
    (folder / "guard_plugin.py").write_text(code)
    info = folder / "guard_plugin-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: guard-plugin\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[treadle.hooks]\nguard = guard_plugin:Guard\n")


CODE = """
import treadle
from treadle.ports.hooks import Block, Hook
open({mark!r}, "w").close()
class Guard(Hook):
    async def before(self, call):
        return Block("the guard says no") if "secret" in str(call.arguments) else None
"""


def test_a_hook_of_a_package_is_off_until_it_is_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, mark = tmp_path / "site", tmp_path / "imported"
    site.mkdir()
    install(site, CODE.format(mark=str(mark)))
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    home = Home(write_home(tmp_path / "home"))
    [plugin] = [each for each in list_hook_plugins() if each.name == "guard"]
    assert (plugin.package, plugin.version) == ("guard-plugin", "1.0")
    assert load_approved_hooks(home) == []
    assert not mark.exists()
    write_approved_plugins(home, [plugin])
    assert read_approved_plugins(home) == (plugin,)

    async def perform() -> None:
        steps = (ask(call("look", at="the secret")), ask(call("look", at="a tree")), say("Done."))
        engine = open_engine(home.path, *steps)
        engine.add_tools(look)
        async with engine:
            agent = AgentSpec("hero", "scripted/x", tools=("look",))
            events = [event.data async for event in engine.stream(agent, "Go.")]
        [blocked] = [event for event in events if isinstance(event, HookBlocked)]
        assert "the guard says no" in blocked.content
        assert [event.content for event in events if isinstance(event, ToolCallEnd)] == ["seen a tree"]

    in_time(perform())
    install(site, CODE.format(mark=str(mark)), version="2.0")
    with pytest.raises(UsageError, match="no longer installed as it was"):
        load_approved_hooks(home)
    sys.modules.pop("guard_plugin", None)


def run_with_hook(tmp_path: Path, hook: CommandHook, **arguments: Any) -> list[Any]:
    found: list[Any] = []

    async def perform() -> None:
        engine = open_engine(write_home(tmp_path / "home"), ask(call("look", **arguments)), say("Done."))
        engine.add_tools(look)
        workspace = tmp_path / "w"
        workspace.mkdir(exist_ok=True)
        async with engine:
            agent = AgentSpec("hero", "scripted/x", tools=("look",), workspace=str(workspace), hooks=(hook,))
            found.extend([event.data async for event in engine.stream(agent, "Go.")])

    in_time(perform())
    return [event for event in found if isinstance(event, HookBlocked | ToolCallEnd)]


@needs_sandbox
def test_a_command_of_an_agent_file_decides_about_calls(tmp_path: Path) -> None:
    [allowed] = run_with_hook(tmp_path, CommandHook("cat > event.json"), at="a tree")
    assert allowed.content == "seen a tree"
    event = json.loads((tmp_path / "w" / "event.json").read_text())
    assert event["event"] == "before"
    assert (event["tool"], event["arguments"], event["agent"]) == ("look", {"at": "a tree"}, "hero")
    [blocked] = run_with_hook(tmp_path, CommandHook("echo not today >&2; exit 2"), at="x")
    assert "not today" in blocked.content
    [blocked] = run_with_hook(tmp_path, CommandHook("""echo '{"decision": "block", "reason": "no"}'"""), at="x")
    assert blocked.content.endswith("no")
    [changed] = run_with_hook(tmp_path, CommandHook("""echo '{"arguments": {"at": "y"}}'"""), at="x")
    assert changed.content == "seen y"
    after = CommandHook("""echo '{"result": "hidden"}'""", on="after")
    assert [each.content for each in run_with_hook(tmp_path, after, at="x")] == ["hidden"]
    [other] = run_with_hook(tmp_path, CommandHook("exit 2", tools="bash"), at="x")
    assert other.content == "seen x"


@needs_sandbox
@pytest.mark.parametrize("command", ["exit 1", "echo nonsense", "sleep 600", 'echo \'{"decision": "maybe"}\''])
def test_a_command_that_fails_blocks_the_call(tmp_path: Path, command: str) -> None:
    [blocked] = run_with_hook(
        tmp_path, CommandHook(command, timeout=0.5 if command == "sleep 600" else 30.0), at="x"
    )
    assert isinstance(blocked, HookBlocked)
    assert blocked.cause in ("failed", "timeout")


@needs_sandbox
def test_a_command_is_confined(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("private")
    hook = CommandHook(f"cat {tmp_path}/outside.txt > copy; cat {tmp_path}/home/config.yaml >> copy; true")
    run_with_hook(tmp_path, hook, at="x")
    assert (tmp_path / "w" / "copy").read_text() == ""
