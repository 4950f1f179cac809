"""`treadle run`, killed with kill -9 at random moments, with a tool that must not be repeated."""

import asyncio
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint, Request, calls, fragment, says
from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Shell, finish

ROUNDS = 20
KILLS = 7
OF_NOTE = 4
"""Events after which a process has got on: more than that it took the run up."""

PLUGIN = """
import asyncio, os
import treadle

@treadle.tool(effect="external", repeatable=False)
async def append_line(n: int, context: treadle.ToolContext) -> str:
    "Append a line to the file."
    await asyncio.sleep(0.02)
    with open(os.environ["LINES"], "a") as file:
        file.write(context.idempotency_key + "\\n")
    await asyncio.sleep(0.02)
    return f"line {n} appended"
"""


def install_plugin(shell: Shell, folder: Path) -> None:
    """Install a plugin with a tool, found by its entry point."""
    metadata = folder / "lines-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[treadle.tools]\nlines = lines_plugin:append_line\n")
    (folder / "lines_plugin.py").write_text(PLUGIN)
    shell.environment |= {"PYTHONPATH": str(folder), "LINES": str(folder / "lines.txt")}


def policy(request: Request) -> Answer:
    """A model that wants many lines, two at a time now and then, and complains of a conversation out of shape."""
    messages: list[dict[str, Any]] = request.json["messages"]
    assert_paired(messages)
    turns = sum("tool_calls" in message for message in messages)
    if turns >= ROUNDS:
        return says("All lines are appended.")
    wanted = [0, 1] if turns % 4 == 3 else [0]
    return calls(
        *(fragment(index, f"call_{turns}_{index}", "append_line", json.dumps({"n": turns})) for index in wanted)
    )


def assert_paired(messages: list[dict[str, Any]]) -> None:
    """Check that every call is followed by its one result, in order."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert open_calls, "a result without a call"
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls, f"calls without a result: {open_calls}"
            open_calls = [call["id"] for call in message.get("tool_calls", ())]
    assert not open_calls, f"calls without a result: {open_calls}"


@pytest.mark.parametrize("seed", range(2))
async def test_no_effect_is_lost_or_repeated_when_the_command_is_killed(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    shell = Shell(tmp_path / "home")
    install_plugin(shell, tmp_path / "plugin")

    async with FakeEndpoint(policy=policy) as server:
        shell.url = server.url
        shell.configure()
        shell.write(
            "agents/default/config.yaml",
            "{name: default, model: fake/m, tools: [append_line], limits: {max_steps: 100}}",
        )
        await kill_at_random(shell, chance)
        for run_id in unfinished(shell):
            code, out, err = await shell("runs", "resume", run_id)
            assert (code, out.strip()) == (0, "All lines are appended."), err
    check_journal(shell, tmp_path / "plugin" / "lines.txt")


async def kill_at_random(shell: Shell, chance: random.Random) -> None:
    """Start a run, kill its process, resume it, and kill it again. Start another run when one ends meanwhile."""
    kills = 0
    while kills < KILLS:
        found, known = unfinished(shell), count_events(shell)
        process = shell.start("runs", "resume", found[0]) if found else shell.start("run", "append the lines")
        waiting = asyncio.create_task(asyncio.to_thread(process.wait))
        await wait_until_working(shell, known, waiting)
        done, _ = await asyncio.wait((waiting,), timeout=0.6 * chance.random())
        if not done:
            process.kill()
            kills += 1
        await waiting
        await finish(process)


async def wait_until_working(shell: Shell, known: int, waiting: "asyncio.Task[int]") -> None:
    """Wait until the process has made progress. A run that is always killed before that is quarantined."""
    give_up = asyncio.get_running_loop().time() + HANG_SECONDS
    while (  # noqa: ASYNC110 -- another process writes
        count_events(shell) < known + OF_NOTE and not waiting.done() and asyncio.get_running_loop().time() < give_up
    ):
        await asyncio.sleep(0.02)


def count_events(shell: Shell) -> int:
    return sum(count for (count,) in query(shell, "SELECT count(*) FROM events"))


def unfinished(shell: Shell) -> list[str]:
    return [row[0] for row in query(shell, "SELECT run_id FROM runs WHERE outcome IS NULL ORDER BY id")]


def query(shell: Shell, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    database = shell.home / "treadle.db"
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as connection:
        try:
            return connection.execute(sql, values).fetchall()
        except sqlite3.OperationalError:  # killed before the tables were made
            return []


def check_journal(shell: Shell, lines_file: Path) -> None:
    lines = lines_file.read_text().splitlines()
    assert len(set(lines)) == len(lines), "a line was written twice"
    for (run,) in query(shell, "SELECT id FROM runs"):
        check_run(query(shell, "SELECT type, data FROM events WHERE run = ? ORDER BY sequence", run), lines)


def check_run(rows: list[tuple[Any, ...]], lines: list[str]) -> None:
    started: dict[str, str] = {}
    at_risk: set[str] = set()
    for type_, raw in rows:
        data = json.loads(raw)
        match type_:
            case "tool_call_start":
                started[data["call_id"]] = data["idempotency_key"]
            case "run_recovered":
                at_risk = set(started)
            case "tool_call_end":
                assert lines.count(started.pop(data["call_id"])) == 1
            case "tool_call_error":
                assert data["kind"] == "interrupted"
                assert data["call_id"] in at_risk, (
                    "told `outcome unknown` of a call that was not in flight at a kill"
                )
                assert lines.count(started.pop(data["call_id"])) <= 1
            case _:
                pass
    assert started == {}
    assert rows[-1][0] == "run_end"
