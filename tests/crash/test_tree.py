"""Runs under runs, in real processes that are killed with -9: while a parent waits, while its child works, in the
middle of beginning one; and cancelled while a child's command runs, with all that the command has started."""

import asyncio
import json
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_kill import assert_paired, install_plugin, kill_at_random, query, unfinished
from tests.fake_endpoint import Answer, FakeEndpoint, Request, calls, fragment, says
from tests.patience import HANG_SECONDS
from tests.sandbox.hostile import processes_called, tree
from tests.surfaces.shell import Process, Shell, finish

CHILDREN = 3
LINES = 4
AGENT = """\
name: default
model: fake/m
tools: [append_line, agent_spawn]
limits: {max_steps: 100}
memory: {recall: 0, remember: false}
"""


def spawn(index: int) -> dict[str, Any]:
    return fragment(index, f"call_s{index}", "agent_spawn", json.dumps({"message": f"part {index}"}))


def policy(request: Request) -> Answer:
    """A model that leaves three parts to others, who append some lines each, and then answers."""
    messages: list[dict[str, Any]] = request.json["messages"]
    assert_paired(messages)
    asked = next(message["content"] for message in messages if message["role"] == "user")
    turns = sum("tool_calls" in message for message in messages)
    if asked == "append the lines":
        return says("All parts are done.") if turns else calls(*map(spawn, range(CHILDREN)))
    if turns >= LINES:
        return says(f"{asked} is done.")
    return calls(fragment(0, f"call_{turns}", "append_line", json.dumps({"n": turns})))


def prepare_shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path / "home")
    install_plugin(shell, tmp_path / "plugin")
    return shell


def configure(shell: Shell, url: str) -> None:
    shell.url = url
    shell.configure()
    shell.write("agents/default/config.yaml", AGENT)


async def until_written(shell: Shell, sql: str, process: Process) -> list[tuple[Any, ...]]:
    """Wait until the journal holds this."""
    async with asyncio.timeout(HANG_SECONDS):
        while not (found := query(shell, sql)):
            assert process.poll() is None, "the command has ended too soon"
            await asyncio.sleep(0.002)
    return found


async def kill(process: Process) -> None:
    process.kill()
    await asyncio.to_thread(process.wait)
    await finish(process)


async def resume_all_runs(shell: Shell) -> None:
    """Resume every run that has not ended. The answer of a root says that all parts are done."""
    for root in roots(shell):
        if root in unfinished(shell):
            code, out, err = await shell("runs", "resume", root)
            assert (code, out.strip()) == (0, "All parts are done."), err


def roots(shell: Shell) -> list[str]:
    return [row[0] for row in query(shell, "SELECT run_id FROM runs WHERE parent_run_id IS NULL ORDER BY id")]


def check(shell: Shell, lines: Path) -> None:
    """Check that each call has one child, one end and one result, that no line occurs twice, and that no run is in
    progress."""
    assert unfinished(shell) == []
    written = Counter(lines.read_text().splitlines())
    assert not [line for line, times in written.items() if times > 1], "a line was written twice"
    for root in roots(shell):
        rows = query(
            shell,
            "SELECT events.type, events.data FROM events JOIN runs ON runs.id = run WHERE run_id = ? "
            "ORDER BY events.sequence",
            root,
        )
        found: dict[str, Counter[str]] = {}
        children: dict[str, str] = {}
        for type_, raw in rows:
            data = json.loads(raw)
            if "call_id" in data:
                found.setdefault(type_, Counter())[data["call_id"]] += 1
            if type_ == "agent_spawn":
                children[data["call_id"]] = data["run_id"]
        once = Counter([f"call_s{index}" for index in range(CHILDREN)])
        assert found["agent_spawn"] == found["agent_end"] == found["tool_call_end"] == once, found
        begun = {row[0] for row in query(shell, "SELECT run_id FROM runs WHERE parent_run_id = ?", root)}
        assert begun == set(children.values())
        assert "tool_call_error" not in found
        for child in begun:
            done = query(
                shell,
                "SELECT count(*) FROM events JOIN runs ON runs.id = run "
                "WHERE run_id = ? AND events.type IN ('tool_call_end', 'tool_call_error')",
                child,
            )
            assert done == [(LINES,)]


@pytest.mark.parametrize("seed", range(1))
async def test_the_end_of_every_child_is_delivered_once_when_processes_are_killed(
    seed: int, tmp_path: Path
) -> None:
    shell = prepare_shell(tmp_path)

    async with FakeEndpoint(policy=policy) as server:
        configure(shell, server.url)
        await kill_at_random(shell, random.Random(seed))
        await resume_all_runs(shell)
    check(shell, tmp_path / "plugin" / "lines.txt")


async def test_a_tree_continues_after_a_kill_while_the_parent_waits_and_its_children_work(tmp_path: Path) -> None:
    """Also where the children end while the parent cannot: it is told by the journal, once."""
    shell = prepare_shell(tmp_path)

    async with FakeEndpoint(policy=policy) as server:
        configure(shell, server.url)
        process = shell.start("run", "append the lines")
        await until_written(shell, "SELECT 1 FROM events WHERE type = 'run_waiting'", process)
        await until_written(shell, "SELECT 1 FROM events WHERE type = 'tool_call_start'", process)
        await kill(process)
        [root] = roots(shell)
        assert len(unfinished(shell)) == 1 + CHILDREN
        process = shell.start("runs", "resume", root)
        await until_written(shell, "SELECT 1 FROM events WHERE type = 'agent_end'", process)
        await kill(process)
        await resume_all_runs(shell)
    check(shell, tmp_path / "plugin" / "lines.txt")


@pytest.mark.parametrize("seed", range(2))
async def test_the_call_and_its_child_run_are_recorded_together_when_the_process_is_killed(
    seed: int, tmp_path: Path
) -> None:
    """The intent and the child are one commit: whenever it dies, there are both, or none."""
    shell = prepare_shell(tmp_path)

    async with FakeEndpoint(policy=policy) as server:
        configure(shell, server.url)
        process = shell.start("run", "append the lines")
        await until_written(shell, "SELECT 1 FROM events WHERE type = 'llm_request'", process)
        await asyncio.sleep(0.03 * random.Random(seed).random())
        await kill(process)
        wanted = query(shell, "SELECT count(*) FROM events WHERE type = 'agent_spawn'")
        begun = query(shell, "SELECT count(*) FROM runs WHERE parent_run_id IS NOT NULL")
        assert wanted == begun
        await resume_all_runs(shell)
    check(shell, tmp_path / "plugin" / "lines.txt")


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_cancel_ends_the_processes_that_commands_of_child_runs_started(
    sandbox: str, tmp_path: Path
) -> None:
    mark = f"left-behind-{uuid.uuid4().hex[:8]}"

    def lingers(request: Request) -> Answer:
        asked = request.json["messages"][1]["content"]
        if asked == "go":
            return calls(spawn(0), spawn(1))
        return calls(fragment(0, "call_b", "bash", json.dumps({"command": tree(mark), "timeout": 600})))

    async def scenario() -> tuple[dict[str, Any], Shell]:
        shell = Shell(tmp_path / "home")
        async with FakeEndpoint(policy=lingers) as server:
            shell.url = server.url
            shell.configure()
            shell.write(
                "agents/default/config.yaml",
                f"{{name: default, model: fake/m, persona: x, tools: [bash, agent_spawn], sandbox: '{sandbox}', "
                "approvals: {default: auto, rules: [{tool: bash, do: auto}]}}",
            )
            process = shell.start("run", "go", "--json")
            async with asyncio.timeout(HANG_SECONDS):
                while len(processes_called(mark)) < 10:
                    assert process.poll() is None, "the command has ended too soon"
                    await asyncio.sleep(0.05)
            [root] = roots(shell)
            cancelled = await shell("runs", "cancel", root)
            assert cancelled.code == 0, cancelled
            done = await finish(process)
            assert done.code == 130, done
            return done.json[-1], shell

    end, shell = await scenario()
    assert processes_called(mark) == []
    assert end["type"] == "run_end"
    stopped = end["data"]["stopped"]
    for (child,) in query(shell, "SELECT run_id FROM runs WHERE parent_run_id IS NOT NULL"):
        assert f"{child} (default)" in stopped, stopped
    assert stopped.count("bash (call_b)") == 2, "what the children had to stop is named too"
    outcomes = query(shell, "SELECT outcome FROM runs")
    assert outcomes == [("cancelled",)] * 3
    killed = query(shell, "SELECT data FROM events WHERE type = 'process_killed'")
    assert [json.loads(raw)["why"] for (raw,) in killed] == ["cancelled"] * 2
