"""Every template makes an agent that works: its tools exist, and a run uses them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.engine.running import opened
from treadle.config.agent_files import TEMPLATES
from treadle.config.home import Home
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.testing.models import ScriptedModel, ask, call, say

FREE_CALLS = {
    "assistant": call("memory_search", query="tea"),
    "coder": call("read_file", path="notes.txt"),
    "researcher": call("grep", pattern="warp"),
    "reviewer": call("glob", pattern="*.txt"),
    "operator": call("read_file", path="notes.txt"),
}


def test_there_are_five_templates() -> None:
    assert list(TEMPLATES) == ["assistant", "coder", "researcher", "reviewer", "operator"]


@pytest.mark.parametrize("name", TEMPLATES)
async def test_an_agent_from_a_template_runs_with_all_of_its_tools(name: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("warp and weft\n")
    home = Home(tmp_path / "home")
    home.ensure()
    home.create_agent(f"my-{name}", "scripted/x", template=TEMPLATES[name])
    model = ScriptedModel(ask(FREE_CALLS[name]), say("Done."))

    async with opened(tmp_path, model) as engine:
        spec = home.agent(f"my-{name}")
        result = await engine.run(spec, "Look.", workspace=tmp_path / "work", user="ann")
        assert (result.outcome, result.text) == ("completed", "Done.")
        events = [event.data async for event in engine.events(result.run_id)]
    assert [e for e in events if isinstance(e, ToolCallError)] == []
    assert any(isinstance(e, ToolCallEnd) for e in events), "the call needed no approval"
    offered = {tool.name for tool in model.requests[0].preamble.tools}
    named = {tool for tool in TEMPLATES[name].tools if not tool.startswith("@") and "*" not in tool}
    assert named <= offered
    assert set(TEMPLATES[name].free) <= offered
    assert model.requests[0].preamble.system.startswith(TEMPLATES[name].persona.strip())


WRITES = (
    "git diff --output=x", "git log --output=x", "git status; touch x", "git diff $(touch x)", "git log > x",
    "git show HEAD | tee x", "git diff --ext-diff", "git status && git init y", "git log `touch x`",
)  # fmt: skip


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


@pytest.mark.parametrize("name", ["reviewer", "researcher"])
@pytest.mark.parametrize("has_git", [True, False])
async def test_a_reviewer_and_a_researcher_change_nothing(name: str, has_git: bool, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    if has_git:
        make_repository(work)
    home = Home(tmp_path / "home")
    home.ensure()
    home.create_agent(name, "scripted/x", template=TEMPLATES[name])
    tries = [call("write_file", "w", path="x", content="x"), call("edit_file", "e", path="x", old="a", new="b")]
    tries += [call("bash", f"b{number}", command=command) for number, command in enumerate(WRITES)]
    model = ScriptedModel(ask(*tries), say("Done."))

    async with opened(tmp_path, model) as engine:
        result = await engine.run(home.agent(name), "Look.", workspace=work, user="ann")
        events = [event.data async for event in engine.events(result.run_id)]
    assert [e.call_id for e in events if isinstance(e, ToolCallEnd)] == []
    assert sorted(path.name for path in work.iterdir()) == ([".git"] if has_git else [])


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="commands are asked about without a sandbox")
async def test_a_reviewer_reads_the_history_without_an_approval_and_changes_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    make_repository(work)
    home = Home(tmp_path / "home")
    home.ensure()
    home.create_agent("reviewer", "scripted/x", template=TEMPLATES["reviewer"])
    calls = ask(call("bash", "a", command="git status"), call("bash", "b", command="touch x"))
    model = ScriptedModel(calls, say("Done."))

    async with opened(tmp_path, model) as engine:
        result = await engine.run(home.agent("reviewer"), "Review.", workspace=work)
        events = [e.data async for e in engine.events(result.run_id)]
    assert [e.call_id for e in events if isinstance(e, ToolCallEnd)] == ["a"]
    assert [e.call_id for e in events if isinstance(e, ToolCallError) and e.kind == "denied"] == ["b"]
    assert not (work / "x").exists()
