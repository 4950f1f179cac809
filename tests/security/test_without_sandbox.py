"""Where no sandbox works: commands ask by default, and the engine's home is closed to them where the kernel can."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import treadle
from tests.engine.running import agent, journal, opened
from tests.replay.test_replay import same
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.events import ApprovalRequested, ToolCallEnd, ToolCallError
from treadle.domain.permissions import SandboxMode, SandboxPolicy
from treadle.operations.approvals import LIST, ListApprovals
from treadle.operations.operation import LocalCaller
from treadle.ports.sandbox import Command
from treadle.sandbox import commands as sandbox_commands
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.self_restriction import read_landlock_version
from treadle.surfaces.cli.approval_prompt import ApprovalDialog
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools import bash

needs_landlock = pytest.mark.skipif(
    sys.platform != "linux" or read_landlock_version() < 3, reason="the kernel has no Landlock that can do this"
)


@pytest.fixture(autouse=True)
def _no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_commands, "_find_bubblewrap", lambda: None)


async def run_command_line(
    tmp_path: Path, line: str = "echo ran", decision: Any = None, **settings: Any
) -> tuple[Any, list[Any]]:
    """Run one command of an agent. Return its result and the approvals that were requested."""
    model = ScriptedModel(ask(call("bash", "c1", command=line)), say("done"))
    callbacks = None if decision is None else treadle.Callbacks(on_approval=lambda event: decision)

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=["bash"], **settings), "go", callbacks)
        await same(engine, result.run_id)
        events = [event.data for event in await journal(engine, result.run_id)]
    [ended] = [data for data in events if isinstance(data, ToolCallEnd | ToolCallError)]
    return ended, [data for data in events if isinstance(data, ApprovalRequested)]


@pytest.mark.parametrize(
    ("approvals", "rule"),
    [
        ({}, ""),
        ({"default": "ask"}, "; `bash` is on ask by default"),
        (
            {"rules": [{"tool": "bash", "match": "echo *", "do": "ask"}]},
            "; the rule for `echo *` of `bash` says ask",
        ),
    ],
    ids=["auto", "ask", "a rule that asks"],
)
async def test_a_command_asks_and_the_reviewer_learns_that_no_sandbox_confines_it(
    tmp_path: Path, approvals: dict[str, Any], rule: str
) -> None:
    ended, asked = await run_command_line(tmp_path, decision="approve", approvals=approvals)
    assert (ended.content, len(asked)) == ("ran\n", 1)
    concern = asked[0].reason.removesuffix(rule)
    assert asked[0].reason == concern + rule
    assert concern.startswith("no sandbox: bubblewrap")
    assert ";" not in concern


async def test_the_terminal_learns_from_a_fact_that_no_sandbox_confines_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wording of the reason does not matter."""
    monkeypatch.setattr(bash, "UNCONFINED_PREFIX", "")

    async def scenario() -> str:
        async with opened(tmp_path, ScriptedModel(ask(call("bash", "c1", command="echo ran")))) as engine:
            await engine.submit(agent(tools=["bash"], approvals={"via": "api"}), "go")
            caller = LocalCaller(engine.context)
            while not (found := (await caller.call(LIST, ListApprovals())).items):  # noqa: ASYNC110 -- rows of a database
                await asyncio.sleep(0.01)
            home, printer, prompt = Home(tmp_path), Any, Any
            hero = AgentSpec("hero", "scripted/x")
            dialog: Any = ApprovalDialog(caller, home, printer, prompt, found[0], hero)  # pyright: ignore
            await dialog._find_scopes()
            return dialog._where()

    assert (await scenario()).endswith(", in no sandbox, with the network on")


async def test_a_command_is_denied_where_no_reviewer_can_answer(tmp_path: Path) -> None:
    ended, asked = await run_command_line(tmp_path)
    assert isinstance(ended, ToolCallError)
    assert (ended.kind, asked) == ("denied", [])
    assert "no sandbox" in ended.content


@pytest.mark.parametrize(
    "settings",
    [
        {"sandbox": "off"},
        {"approvals": {"rules": [{"tool": "bash", "do": "auto"}]}},
        {"approvals": {"rules": [{"tool": "bash", "match": "echo *", "do": "auto"}]}},
    ],
    ids=["off", "a rule", "a rule that matches"],
)
async def test_settings_of_the_operator_allow_commands_without_approval(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    ended, asked = await run_command_line(tmp_path, **settings)
    assert (ended.content, asked) == ("ran\n", [])


async def test_a_rule_for_some_commands_does_not_allow_others(tmp_path: Path) -> None:
    rules = {"rules": [{"tool": "bash", "match": "git *", "do": "auto"}]}
    for line in ("echo ran", "git $(echo status)"):
        folder = tmp_path / line.split()[0]
        folder.mkdir()
        ended, _ = await run_command_line(folder, line, approvals=rules)
        assert isinstance(ended, ToolCallError), line


async def output(text: str, mode: SandboxMode, home: Path, workspace: Path) -> str:
    commands = ShellCommands(hidden=[home])
    try:
        return (await commands.run(Command(text, workspace, SandboxPolicy(mode)), lambda text: None)).output
    finally:
        commands.close()


@needs_landlock
async def test_commands_cannot_read_the_engines_home(tmp_path: Path) -> None:
    home = tmp_path / "user" / ".treadle"
    workspace = home / "workspaces" / "hero"
    workspace.mkdir(parents=True)
    (home / "config.yaml").write_text("canary")
    (tmp_path / "user" / "notes").mkdir()
    attack = f"""
cat {home}/config.yaml; echo x >> {home}/config.yaml; echo x > {home}/new; mv {home}/config.yaml stolen
ln {home}/config.yaml linked; echo mine > own && mv own {home}/moved; (setsid cat {home}/config.yaml)
cp {home}/config.yaml copied; rm -f {home}/config.yaml; truncate -s 0 {home}/config.yaml
"""
    work = f"""
echo hello > made && mkdir d && mv made d/moved && cat d/moved; ls / >/dev/null && echo listed
echo x > {tmp_path}/user/notes/x && cat {tmp_path}/user/notes/x; t=$(mktemp) && echo temporary > $t && cat $t
python3 -c 'print(1 + 1)'; echo into > /dev/null; ls ~ >/dev/null && echo home
"""
    said = await output(f"({attack}) 2>/dev/null; ({work}) 2>&1", "auto", home, workspace)
    assert said == "hello\nlisted\nx\ntemporary\n2\nhome\n"
    assert (home / "config.yaml").read_text() == "canary"
    assert {path.name for path in home.iterdir()} == {"config.yaml", "workspaces"}
    assert "canary" in await output(f"cat {home}/config.yaml", "off", home, workspace)  # as the operator has said


def test_an_agent_made_with_the_command_asks_by_default(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = yaml.safe_load(home.create_agent("careful", "scripted/model").read_text())
    assert made["approvals"]["default"] == "ask"
    source = tmp_path / "given.yaml"
    source.write_text("name: given\nmodel: scripted/model\n")
    assert "approvals" not in yaml.safe_load(home.create_agent("given", source=source).read_text())
    assert home.put_agent({"name": "posted", "model": "scripted/model"}, new=True).approvals.default == "auto"
    assert agent().spec.approvals.default == "auto"
