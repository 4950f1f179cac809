"""`treadle runs steps`."""

import json
from pathlib import Path

import pytest

from tests.engine.running import agent, opened
from tests.fake_endpoint import FakeEndpoint, calls, fragment, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against
from treadle.domain.runs import Usage
from treadle.surfaces.cli.commands.runs import show_steps
from treadle.testing.models import ScriptedModel, say


def test_the_steps_of_a_run_are_printed_as_text_and_as_json(shell: Shell) -> None:
    wants = calls(fragment(0, "c1", "glob", json.dumps({"pattern": "*.none"})))

    @against(shell, wants, says("Nothing \x1b[31mthere."))
    async def _(server: FakeEndpoint) -> None:
        shell.write("agents/default/config.yaml", "name: default\nmodel: fake/m\ntools: [glob]\n")
        run_id = (await shell("run", "--json", "Look.")).json[0]["run_id"]
        shown = await shell("runs", "steps", run_id)
        assert (shown.code, shown.err) == (0, "")
        first, called, second, said, used, took = shown.out.splitlines()
        assert first.startswith("step 1  fake/m  ")
        assert called.startswith('    glob {"pattern": "*.none"}  ok ')
        assert second.startswith("step 2  fake/m  ")
        assert said == "    text: Nothing ␛[31mthere.", "nothing that is shown acts on a terminal"
        assert used.startswith("2 steps, 2 model calls, 1 tool call, ")
        assert " in the model, " in took
        [whole] = (await shell("runs", "steps", run_id, "--json")).json
        steps = whole["steps"]
        assert [(step["record"], step["number"]) for step in steps] == [("step", 1), ("step", 2)]
        [made] = steps[0]["calls"]
        assert (made["tool"], made["status"], made["input"]) == ("glob", "ok", '{"pattern": "*.none"}')
        assert whole["metrics"]["steps"] == 2
        assert whole["metrics"]["input_tokens"] == sum(step["used"]["input_tokens"] for step in steps)
        assert whole["overhead_ms"] >= 0


async def test_a_summary_is_printed_separately_from_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "words and more words that say nothing at all, " * 12

    summary = say("## Goal\nTo talk.", usage=Usage(300, 30))
    async with opened(tmp_path, ScriptedModel(*[say(long)] * 4, summary)) as engine:
        for number in range(4):
            await engine.run(agent(), f"message {number}", session="ses_1")
        result = await engine.run(agent(), "/compact", session="ses_1")
    monkeypatch.setenv("TREADLE_DATABASE_URL", f"sqlite:///{tmp_path}/t.db")
    assert await show_steps(result.run_id, json=False) == 0
    summed, used, _ = capsys.readouterr().out.splitlines()
    assert summed.startswith("summary  scripted/x  ")
    assert summed.endswith("300 in, 30 out")
    assert used.startswith("0 steps, 1 model call, 0 tool calls, 300 tokens in, 30 out")


async def test_a_missing_run_is_reported(shell: Shell) -> None:
    assert "There is no run run_9" in (await shell("runs", "steps", "run_9")).complaint
