"""Hooks of installed packages and of agent files."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.mcp.homes import needs_sandbox, open_engine, write_home
from treadle.config.approved_plugins import read_approved_plugins, write_approved_plugins
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.events import HookBlocked, ToolCallEnd, ToolCallError
from treadle.domain.hooks import CommandHook
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.home.hooks import find_refused_hooks, list_hook_plugins, load_approved_hooks
from treadle.sandbox import commands
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


async def test_a_hook_of_a_package_is_off_until_it_is_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    steps = (ask(call("look", at="the secret")), ask(call("look", at="a tree")), say("Done."))
    engine = open_engine(home.path, *steps)
    engine.add_tools(look)
    async with engine:
        agent = AgentSpec("hero", "scripted/x", tools=("look",))
        events = [event.data async for event in engine.stream(agent, "Go.")]
    [blocked] = [event for event in events if isinstance(event, HookBlocked)]
    assert "the guard says no" in blocked.content
    assert [event.content for event in events if isinstance(event, ToolCallEnd)] == ["seen a tree"]
    install(site, CODE.format(mark=str(mark)), version="2.0")
    with pytest.raises(UsageError, match="no longer installed as it was"):
        load_approved_hooks(home)
    sys.modules.pop("guard_plugin", None)


async def run_with_hook(
    tmp_path: Path, hook: CommandHook, settings: dict[str, Any] | None = None, **arguments: Any
) -> list[Any]:
    found: list[Any] = []

    engine = open_engine(write_home(tmp_path / "home"), ask(call("look", **arguments)), say("Done."))
    engine.add_tools(look)
    workspace = tmp_path / "w"
    workspace.mkdir(exist_ok=True)
    async with engine:
        agent = AgentSpec(
            "hero", "scripted/x", tools=("look",), workspace=str(workspace), hooks=(hook,), **(settings or {})
        )
        found.extend([event.data async for event in engine.stream(agent, "Go.")])
    return [event for event in found if isinstance(event, HookBlocked | ToolCallEnd)]


@needs_sandbox
async def test_a_command_of_an_agent_file_decides_about_calls(tmp_path: Path) -> None:
    [allowed] = await run_with_hook(tmp_path, CommandHook("cat > $TREADLE_WORKSPACE/event.json"), at="a tree")
    assert allowed.content == "seen a tree"
    event = json.loads((tmp_path / "w" / "event.json").read_text())
    assert event["event"] == "before"
    assert (event["tool"], event["arguments"], event["agent"]) == ("look", {"at": "a tree"}, "hero")
    [blocked] = await run_with_hook(tmp_path, CommandHook("echo not today >&2; exit 2"), at="x")
    assert "not today" in blocked.content
    [blocked] = await run_with_hook(
        tmp_path, CommandHook("""echo '{"decision": "block", "reason": "no"}'"""), at="x"
    )
    assert blocked.content.endswith("no")
    [changed] = await run_with_hook(tmp_path, CommandHook("""echo '{"arguments": {"at": "y"}}'"""), at="x")
    assert changed.content == "seen y"
    after = CommandHook("""echo '{"result": "hidden"}'""", on="after")
    assert [each.content for each in await run_with_hook(tmp_path, after, at="x")] == ["hidden"]
    [other] = await run_with_hook(tmp_path, CommandHook("exit 2", tools="bash"), at="x")
    assert other.content == "seen x"


@needs_sandbox
@pytest.mark.parametrize("command", ["exit 1", "echo nonsense", "sleep 600", 'echo \'{"decision": "maybe"}\''])
async def test_a_command_that_fails_blocks_the_call(tmp_path: Path, command: str) -> None:
    [blocked] = await run_with_hook(
        tmp_path, CommandHook(command, timeout=0.5 if command == "sleep 600" else 30.0), at="x"
    )
    assert isinstance(blocked, HookBlocked)
    assert blocked.cause in ("failed", "timeout")


@needs_sandbox
async def test_a_command_is_confined(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("private")
    hook = CommandHook(
        f"cd $TREADLE_WORKSPACE; cat {tmp_path}/outside.txt > copy; cat {tmp_path}/home/config.yaml >> copy; true"
    )
    await run_with_hook(tmp_path, hook, at="x")
    assert (tmp_path / "w" / "copy").read_text() == ""


BLOCKING = "#!/bin/sh\necho blocked by the hook >&2\nexit 2\n"


def write_script(path: Path, content: str = BLOCKING) -> str:
    """Write an executable script. Return its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return hashlib.sha256(content.encode()).hexdigest()


@needs_sandbox
@pytest.mark.parametrize("place", ["home/agents/hero/check", "home/hooks/check"])
async def test_the_program_of_a_hook_is_in_the_home(tmp_path: Path, place: str) -> None:
    write_script(tmp_path / place)
    write_script(tmp_path / "w" / "check", "#!/bin/sh\n")
    for command in ("./check", "sh check", "exec ./check", "X=1 bash ./check"):
        [blocked] = await run_with_hook(tmp_path, CommandHook(command), at="x")
        assert "blocked by the hook" in blocked.content, command


@needs_sandbox
@pytest.mark.parametrize("command", ["./check", "sh check", "true; ./check", "cat | bash ./check", "{work}/check"])
async def test_a_program_that_the_agent_can_write_blocks_the_call(tmp_path: Path, command: str) -> None:
    digest = write_script(tmp_path / "w" / "check", "#!/bin/sh\n")
    [blocked] = await run_with_hook(tmp_path, CommandHook(command.format(work=tmp_path / "w")), at="x")
    assert isinstance(blocked, HookBlocked)
    assert f"Put it into {tmp_path}/home/agents/hero." in blocked.content
    assert command.startswith("{") or f"`sha256: {digest}`" in blocked.content


def test_a_program_that_the_agent_can_write_is_found_before_a_run(tmp_path: Path) -> None:
    home = Home(write_home(tmp_path / "home"))
    write_script(tmp_path / "w" / "check")
    write_script(tmp_path / "home" / "hooks" / "good")
    hooks = (CommandHook("./check"), CommandHook("./good"))
    agent = AgentSpec("hero", "scripted/x", workspace=str(tmp_path / "w"), hooks=hooks)
    [problem] = find_refused_hooks(home, agent)
    assert "the hook `./check` blocks its calls: ./check is in the workspace" in problem


@needs_sandbox
async def test_a_pinned_program_runs_from_the_workspace_until_it_changes(tmp_path: Path) -> None:
    digest = write_script(tmp_path / "w" / "check")
    hook = CommandHook("./check", sha256=digest)
    [blocked] = await run_with_hook(tmp_path, hook, at="x")
    assert "blocked by the hook" in blocked.content
    other = write_script(tmp_path / "w" / "check", "#!/bin/sh\n")
    [blocked] = await run_with_hook(tmp_path, hook, at="x")
    assert "check has changed since it was approved" in blocked.content
    assert f"set `sha256: {other}`" in blocked.content
    [allowed] = await run_with_hook(tmp_path, CommandHook("./check", sha256=other), at="x")
    assert allowed.content == "seen x"


@needs_sandbox
async def test_the_agent_cannot_change_its_pinned_hook(tmp_path: Path) -> None:
    digest = write_script(tmp_path / "w" / "check", "#!/bin/sh\n")

    async def perform() -> list[Any]:
        steps = ask(
            call("bash", "c1", command="echo evil >> check; rm -f check"),
            call("write_file", "c2", path="check", content="evil"),
        )
        engine = open_engine(write_home(tmp_path / "home"), steps, say("Done."))
        async with engine:
            hook = CommandHook("./check", sha256=digest)
            agent = AgentSpec(
                "hero", "scripted/x", tools=("bash", "@files"), workspace=str(tmp_path / "w"), hooks=(hook,)
            )
            return [event.data async for event in engine.stream(agent, "Go.")]

    found: list[Any] = []

    found.extend(await perform())
    assert (tmp_path / "w" / "check").read_text() == "#!/bin/sh\n"
    contents = [event.content for event in found if isinstance(event, ToolCallEnd | ToolCallError)]
    assert any("read-only for this agent" in content for content in contents)


@needs_sandbox
async def test_a_hook_imports_and_finds_nothing_of_the_workspace(tmp_path: Path) -> None:
    write_script(tmp_path / "home" / "agents" / "hero" / "check.py", "import json\nprint(json.dumps({}))\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "json.py").write_text("raise SystemExit(0)\ndumps = str\n")
    (tmp_path / "w" / "policy.py").write_text("print('{}')\n")
    [allowed] = await run_with_hook(tmp_path, CommandHook("python3 check.py"), at="x")
    assert allowed.content == "seen x"
    [blocked] = await run_with_hook(tmp_path, CommandHook("python3 -m policy"), at="x")
    assert isinstance(blocked, HookBlocked)


async def test_without_a_sandbox_a_hook_needs_the_consent_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_find_bubblewrap", lambda: None)
    hook = CommandHook("echo blocked by the hook >&2; exit 2")
    [blocked] = await run_with_hook(tmp_path, hook, at="x")
    assert isinstance(blocked, HookBlocked)
    assert "it would run without a sandbox" in blocked.content
    rule = ApprovalRule("bash", "auto", f"exactly: {hook.command}")
    [blocked] = await run_with_hook(tmp_path, hook, {"approvals": ApprovalRules(rules=(rule,))}, at="x")
    assert "blocked by the hook" in blocked.content
    [blocked] = await run_with_hook(
        tmp_path, hook, {"sandbox": "off", "approvals": ApprovalRules(rules=(ApprovalRule("bash", "ask"),))}, at="x"
    )
    assert "it would run without a sandbox (sandbox: off)" in blocked.content
    [blocked] = await run_with_hook(tmp_path, hook, {"sandbox": "off"}, at="x")
    assert "blocked by the hook" in blocked.content


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("./check-command", ("./check-command",)),
        ("python3 -u check.py --strict x", ("check.py",)),
        ("A=1 env B=2 tools/check | jq .", ("tools/check",)),
        ("python3 -m policy", ()),
        ("bash -c 'echo hello'", ()),
        ("/usr/bin/env node ./a.js; sh b.sh && ./c", ("./a.js", "b.sh", "./c")),
        ("jq .decision", ()),
        (". ./lib.sh", ("./lib.sh",)),
        ("echo 'unclosed", ()),
    ],
)
def test_the_programs_of_a_command_line_are_found(command: str, scripts: tuple[str, ...]) -> None:
    assert CommandHook(command).scripts == scripts


def test_a_digest_has_64_digits() -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        CommandHook("./x", sha256="abc")
