"""What the README shows is run: its program against an endpoint on loopback, its files by those who read them."""

import asyncio
import os
import re
import sys
from pathlib import Path
from subprocess import run
from typing import Any

import treadle
from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, delta, fragment, says
from tests.patience import HANG_SECONDS
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId, SessionId

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def calls_add(a: int, b: int) -> Behaviour:
    call = fragment(0, f"call_{a}", "add", f'{{"a": {a}, "b": {b}}}')
    return Answer([delta(tool_calls=[call]), delta(finish="tool_calls"), DONE])


def test_the_program_runs_as_it_stands(tmp_path: Path) -> None:
    async def perform() -> None:
        async with FakeEndpoint(calls_add(2, 3), says("It is 5."), calls_add(4, 5), says("It is 9.")) as server:
            program, _ = blocks("python")
            done = await asyncio.to_thread(
                run,
                [sys.executable, "-c", program.replace("http://127.0.0.1:8100/v1", server.url)],
                cwd=tmp_path,
                env={"PATH": os.environ["PATH"], "TREADLE_HOME": str(tmp_path / "home")},
                capture_output=True,
                text=True,
                timeout=HANG_SECONDS,
            )
            assert done.stderr == ""
            first, *types = done.stdout.splitlines()
            assert first == "It is 5."
            assert types[0] == "run_queued"
            assert types[-1] == "run_end"
            assert {"token", "tool_call_start", "tool_call_end"} < set(types)
            results = [m["content"] for m in server.requests[3].json["messages"] if m["role"] == "tool"]
            assert [result.partition("\n")[2] for result in results] == ["5", "9"]

    asyncio.run(perform())


def test_the_tool_is_one(tmp_path: Path) -> None:
    names: dict[str, Any] = {"treadle": treadle}
    exec(blocks("python")[1], names)
    context = treadle.ToolContext(RunId("r"), SessionId("s"), "c", "k", print, workspace=tmp_path)
    touch = names["touch"]
    assert asyncio.run(touch.run(touch.parse('{"path": "x"}'), context)) == "made x"
    assert (tmp_path / "x").exists()


def test_the_files_are_accepted_and_the_agent_file_shows_the_defaults(tmp_path: Path) -> None:
    config, agent = blocks("yaml")
    folder = tmp_path / "agents" / "researcher"
    folder.mkdir(parents=True)
    (tmp_path / "config.yaml").write_text(config)
    (folder / "config.yaml").write_text(agent)
    home = Home(tmp_path)
    assert home.config().defaults.model == "office/large"
    assert home.agent("researcher") == AgentSpec("researcher", "office/large")
    assert all(re.search(rf"^{field}:", agent, re.MULTILINE) for field in AgentSpec.__struct_fields__)


def test_every_command_of_the_table_is_there() -> None:
    from treadle.surfaces.cli.app import agents_app, app, approvals_app, runs_app

    told = {name for group in re.findall(r"^\| `treadle (.*?) \|", README, re.MULTILINE) for name in group.split()}
    for typer_app in (app, runs_app, agents_app, approvals_app):
        for command in typer_app.registered_commands:
            assert (command.name or "run") in {name.strip("`") for name in told}
