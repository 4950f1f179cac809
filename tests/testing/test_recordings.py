"""Recorded runs as scripts of tests."""

from pathlib import Path

import pytest

import treadle
from treadle.domain.errors import UsageError
from treadle.testing import ScriptedModel, ask, call, load_script, save_script, say


@treadle.tool(effect="read", repeatable=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def run(folder: Path, lead: ScriptedModel, helper: ScriptedModel, record: Path | None = None) -> str:
    """Run an agent that delegates work, and record the run."""
    worker = treadle.Agent("worker", model="helper/any", tools=[add])
    agent = treadle.Agent("lead", model="lead/any", tools=[worker])
    async with treadle.Engine("sqlite:///:memory:", home=folder) as engine:
        engine.add_model("lead", lead)
        engine.add_model("helper", helper)
        result = await engine.run(agent, "Add 2 and 3.")
        if record is not None:
            await save_script(engine, result.run_id, record)
        return result.text


async def test_a_recorded_run_is_replayed_with_its_child_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    lead = ScriptedModel(ask(call("invoke_agent", agent="worker", message="2 + 3"), text="I ask."), say("It is 5."))
    helper = ScriptedModel(ask(call("add", a=2, b=3), thinking="Five?"), say("5"))
    assert await run(tmp_path, lead, helper, path) == "It is 5."
    first, *of_child, last = load_script(path)
    assert [reply.text for reply in of_child] == ["", "5"]
    assert (first.text, of_child[0].thinking, of_child[0].calls[0].name) == ("I ask.", "Five?", "add")
    with ScriptedModel(first, last) as lead_again, ScriptedModel(*of_child) as helper_again:
        assert await run(tmp_path, lead_again, helper_again) == "It is 5."


def test_a_file_without_a_recording_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"no": "list"}')
    with pytest.raises(UsageError, match=r"run\.json: it cannot be read as a recorded run"):
        load_script(path)
