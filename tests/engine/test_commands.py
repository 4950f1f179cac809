"""Commands of agents in the engine: stopped with all they started, never run twice, told as they are."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import treadle
from tests import patience
from tests.engine.running import agent, journal, opened, until
from tests.observed import all_told
from treadle.domain.events import ProcessKilled, ToolCallEnd, ToolCallError
from treadle.testing.models import ScriptedModel, ask, call, say

RUNS = {"rules": [{"tool": "bash", "do": "auto"}]}
"""Commands run without asking, also where no sandbox works."""
ESCAPES = "(setsid sh -c 'sleep 300' &) ; sh -c 'sleep 300 & sleep 300 &' & setsid sleep 300 & sleep 300"


def list_processes(workspace: Path) -> list[int]:
    """The processes whose folder is the workspace, or below it."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                where = (entry / "cwd").readlink()
            except OSError:
                continue
            if where == workspace or workspace in where.parents:
                found.append(int(entry.name))
    return found


async def wait_until_ended(workspace: Path) -> bool:
    await patience.until(lambda: not list_processes(workspace))
    return True


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_cancel_ends_the_whole_tree_and_the_end_lists_it(
    tmp_path: Path, workspace: Path, sandbox: str
) -> None:
    model = ScriptedModel(ask(call("bash", "c1", command=f"echo ready; {ESCAPES}")))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(
            agent(tools=["bash"], workspace=workspace, sandbox=sandbox, approvals=RUNS), "go"
        )
        await until(engine, run_id, "tool_call_progress")
        await engine.cancel(run_id)
        result = await engine.wait(run_id)
        assert result.outcome == "cancelled"
        assert result.stopped == ("bash (c1)",)
        events = [event.data for event in await journal(engine, run_id)]
    [killed] = [data for data in events if isinstance(data, ProcessKilled)]
    assert killed.why == "cancelled"
    assert await wait_until_ended(workspace)


async def test_an_interrupt_ends_a_command_with_an_unknown_outcome(tmp_path: Path, workspace: Path) -> None:
    model = ScriptedModel(ask(call("bash", "c1", command="echo ready; sleep 300")), say("went on"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=["bash"], workspace=workspace, approvals=RUNS), "go")
        await until(engine, run_id, "tool_call_progress")
        await engine.interrupt(run_id)
        await until(engine, run_id, "run_waiting")
        assert await wait_until_ended(workspace)
        await engine.resume(run_id)
        assert (await engine.wait(run_id)).text == "went on"
        events = [event.data for event in await journal(engine, run_id)]
    [error] = [data for data in events if isinstance(data, ToolCallError)]
    assert "outcome unknown" in error.content


WORKER = """
import asyncio, sys
from pathlib import Path
import treadle
from treadle.config.home import Home
from treadle.testing.models import ScriptedModel, ask, call

async def main(folder):
    engine = treadle.Engine(f"sqlite:///{folder}/t.db", home=Home(Path(folder) / "home"))
    command = "echo once >> ran.txt; " + sys.argv[2]
    engine.add_model("scripted", ScriptedModel(ask(call("bash", "c1", command=command))))
    hero = treadle.Agent(name="hero", model="scripted/x", tools=["bash"], workspace=f"{folder}/workspace",
                         sandbox=sys.argv[3], approvals={"rules": [{"tool": "bash", "do": "auto"}]})
    async with engine:
        print(await engine.submit(hero, "go"), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


def kill_worker_during_command(folder: Path, sandbox: str, written: Path) -> str:
    """Return the run of a worker that was killed after its command had written to a file."""
    arguments = [sys.executable, "-c", WORKER, str(folder), ESCAPES, sandbox]
    worker = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    run_id = worker.stdout.readline().strip()
    give_up = time.monotonic() + patience.HANG_SECONDS
    while not written.exists() or not written.read_text():
        assert time.monotonic() < give_up
        time.sleep(0.02)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    return run_id


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_the_commands_of_a_killed_worker_end_and_are_not_repeated(
    tmp_path: Path, workspace: Path, sandbox: str
) -> None:
    run_id = kill_worker_during_command(tmp_path, sandbox, workspace / "ran.txt")
    model = ScriptedModel(say("checked"))

    assert await wait_until_ended(workspace)
    async with opened(tmp_path, model) as engine:
        assert (await engine.wait(run_id)).text == "checked"
    [told] = all_told(model.requests[0].conversation.messages[-1].parts)
    assert "outcome unknown" in told.content
    assert (workspace / "ran.txt").read_text() == "once\n"


async def test_output_is_returned_with_the_exit_code(tmp_path: Path, workspace: Path) -> None:
    model = ScriptedModel(
        ask(call("bash", "c1", command="echo out; echo err >&2; exit 3")),
        ask(call("bash", "c2", command="vim notes.txt")),
        ask(call("bash", "c3", command="")),
        ask(call("bash", "c4", command="pwd; ls -a; touch here")),
        say("done"),
    )

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=["bash"], workspace=workspace, approvals=RUNS), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    [end] = [data for data in events if isinstance(data, ToolCallEnd)]
    assert end.content.startswith(f"{workspace}\n")
    assert (workspace / "here").exists()
    failed, *errors = [data for data in events if isinstance(data, ToolCallError)]
    assert failed.content.startswith("out\nerr\n[The command failed with exit status 3.]")
    assert [error.kind for error in errors] == ["invalid_arguments", "invalid_arguments"]
    assert "There is no terminal here" in errors[0].content


async def test_rules_see_every_command_of_the_line(tmp_path: Path, workspace: Path) -> None:
    lines = [
        "git --version",
        "git --version; touch a",
        "git --version && $(echo touch) b",
        "env -S 'touch c'",
        "GIT_PAGER='touch d' git --version",
        "PATH=.:$PATH git --version",
        "git --version > e",
        "git() { touch f; }; git --version",
    ]
    model = ScriptedModel(*(ask(call("bash", f"c{n}", command=line)) for n, line in enumerate(lines)), say("done"))
    rules = [{"tool": "bash", "match": "git *", "do": "auto"}]
    hero = agent(
        tools=["bash"], workspace=workspace, approvals={"default": "ask", "rules": rules}, limits={"max_steps": 20}
    )

    async with opened(tmp_path, model) as engine:
        result = await engine.run(hero, "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    assert len([data for data in events if isinstance(data, ToolCallEnd)]) == 1, "only the first may run"
    denials = [data for data in events if isinstance(data, ToolCallError)]
    assert {data.kind for data in denials} == {"denied"}
    assert list(workspace.iterdir()) == []


async def test_a_rule_whose_examples_are_wrong_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    rules = [
        {"tool": "bash", "match": "rm *", "do": "deny", "examples": {"match": ["ls; rm x"], "no_match": ["rm"]}}
    ]
    wrong = [{**rules[0], "examples": {"match": ["mv x y"]}}]
    line = "make test | tail -3"
    exact = {"tool": "bash", "match": f"exactly: {line}", "do": "auto"}
    examples = {"match": [line, f" {line}\n"], "no_match": ["make test", f"{line}; rm x", "make  test | tail -3"]}
    rules += [{**exact, "examples": examples}]
    longer = [{**exact, "examples": {"match": [f"{line}0"]}}]

    async with opened(tmp_path, ScriptedModel(say("fine"))) as engine:
        assert (await engine.run(agent(tools=["bash"], approvals={"rules": rules}), "go")).text == "fine"
        with pytest.raises(treadle.TreadleError, match="does not match its example `mv x y`"):
            await engine.submit(agent(tools=["bash"], approvals={"rules": wrong}), "go")
        with pytest.raises(treadle.TreadleError, match=r"does not match its example `make test \| tail -30`"):
            await engine.submit(agent(tools=["bash"], approvals={"rules": longer}), "go")
