"""A run on a model that is too small for tools."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.engine.running import opened
from treadle.config.home import SMALL_MODEL_PERSONA, Home
from treadle.core.transcript.notes import describe_event
from treadle.domain.agents import AgentSpec
from treadle.domain.events import MemoryRecalled, RunStart
from treadle.domain.ids import RunId
from treadle.domain.permissions import ApprovalRules
from treadle.ports.journal import RunFilter
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptedFailure, ScriptedModel, ask, call, say
from treadle.tools.builtin import SMALL_SET

SMALL, LARGE = 135_000_000, 70_000_000_000


async def run_on(
    tmp_path: Path, parameters: int, agent: str = "default", **options: Any
) -> tuple[ModelRequest, RunStart]:
    """Run an agent of the home on a model of a size. Return the request, and the start of the run."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        f"defaults: {{model: scripted/x}}\nmodels: {{scripted/x: {{parameters: {parameters}}}}}\n"
    )
    model = ScriptedModel(say("A reed, a shuttle."))

    async def scenario() -> RunStart:
        async with opened(tmp_path, model) as engine:
            spec: AgentSpec = Home(home).agent(agent)
            result = await engine.run(spec, "Write a haiku.", **options)
            assert result.outcome == "completed"
            [start] = [e.data async for e in engine.events(result.run_id) if isinstance(e.data, RunStart)]
            return start

    start = await scenario()
    return model.requests[0], start


async def test_the_default_agent_has_no_tools_on_a_small_model_and_says_so_in_one_line(tmp_path: Path) -> None:
    request, start = await run_on(tmp_path, 135_000_000)
    assert (request.preamble.tools, request.preamble.system) == ((), SMALL_MODEL_PERSONA)
    assert "bash" in start.withheld
    note = describe_event(start)
    assert note is not None
    assert "\n" not in note.text
    assert f"{len(start.withheld)} tools withheld" in note.text
    assert "--tools @small" in note.text


async def test_a_larger_model_gets_the_tools_without_a_line(tmp_path: Path) -> None:
    request, start = await run_on(tmp_path, 1_000_000_000)
    assert "bash" in {tool.name for tool in request.preamble.tools}
    assert (start.withheld, start.persona, describe_event(start)) == ((), None, None)


@pytest.mark.parametrize("asked", [["@small"], ["read_file"], ["bash", "read_file"]])
async def test_tools_that_are_asked_for_are_given(tmp_path: Path, asked: list[str]) -> None:
    request, start = await run_on(tmp_path, 135_000_000, tools=asked)
    assert request.preamble.tools
    assert start.withheld == ()


async def test_an_agent_that_names_its_tools_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "agents" / "own"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: own\ntools: [read_file]\n")
    request, start = await run_on(tmp_path, 135_000_000, "own")
    assert [tool.name for tool in request.preamble.tools] == ["read_file"]
    assert start.withheld == ()


def test_a_program_gives_a_small_model_the_tools_of_its_agent() -> None:
    spec = treadle.Agent(name="own", model="local/smollm2", tools=["read_file"]).spec
    assert spec.small_models.tools is None


def size_models(tmp_path: Path, first: int, second: int) -> Home:
    """Return a home in which `scripted/x` and `second/y` have these sizes."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        "defaults: {model: scripted/x}\n"
        f"models: {{scripted/x: {{parameters: {first}}}, second/y: {{parameters: {second}}}}}\n"
    )
    return Home(home)


def tool_names(request: ModelRequest) -> set[str]:
    return {tool.name for tool in request.preamble.tools}


@pytest.mark.parametrize(("first", "second"), [(SMALL, LARGE), (LARGE, SMALL)])
async def test_a_session_continues_on_a_model_of_another_size(tmp_path: Path, first: int, second: int) -> None:
    home = size_models(tmp_path, first, second)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("warp and weft\n")
    small, large = (
        ScriptedModel(say("Hello.")),
        ScriptedModel(ask(call("read_file", path="notes.txt")), say("Warp.")),
    )
    models = {SMALL: small, LARGE: large}

    async with opened(tmp_path, models[first]) as engine:
        engine.add_model("second", models[second])
        for model in ("scripted/x", "second/y"):
            options: Any = {"session": "s", "workspace": tmp_path / "work", "user": "ann"}
            result = await engine.run(home.agent("default"), "Read notes.txt.", model=model, **options)
            assert result.outcome == "completed"
    assert tool_names(small.requests[0]) == set()
    assert all("read_file" in tool_names(request) for request in large.requests)
    seen = str(list(models[second].requests[0].conversation.messages))
    assert ("Hello." if first == SMALL else "warp and weft") in seen


async def test_a_small_fallback_in_the_middle_of_a_run_keeps_its_tools(tmp_path: Path) -> None:
    home = size_models(tmp_path, LARGE, SMALL)
    first = ScriptedModel(
        ask(call("recall", text="warp")),
        ScriptedFailure("auth", "the key is wrong", retryable=False, next_model=True),
    )
    second = ScriptedModel(say("Done."))

    async with opened(tmp_path, first) as engine:
        engine.add_model("second", second)
        spec = msgspec.structs.replace(home.agent("default"), fallbacks=("second/y",))
        result = await engine.run(spec, "Look.", user="ann")
        assert (result.outcome, result.text) == ("completed", "Done.")
    assert second.requests[0].preamble == first.requests[0].preamble


# ── A small model as a child agent ──


@pytest.mark.parametrize(
    ("order", "given", "persona"),
    [
        ({}, set[str](), SMALL_MODEL_PERSONA),
        ({"tools": ["read_file", "glob"]}, {"read_file", "glob"}, SMALL_MODEL_PERSONA),
        ({"tools": ["@small"]}, {*SMALL_SET}, SMALL_MODEL_PERSONA),
        ({"instructions": "You count words."}, set[str](), "You count words."),
    ],
)
async def test_a_child_on_a_small_model_gets_only_the_tools_of_its_order(
    tmp_path: Path, order: dict[str, Any], given: set[str], persona: str
) -> None:
    home = size_models(tmp_path, LARGE, SMALL)
    large = ScriptedModel(ask(call("agent_spawn", message="Count.", model="second/y", **order)), say("Done."))
    small = ScriptedModel(say("Three."))

    async def scenario() -> RunStart:
        async with opened(tmp_path, large) as engine:
            engine.add_model("second", small)
            spec = home.agent("default")
            spec = msgspec.structs.replace(
                spec, tools=(*spec.tools, "agent_spawn"), fallbacks=("second/y",), approvals=ApprovalRules()
            )
            result = await engine.run(spec, "Count the words.")
            assert (result.outcome, result.text) == ("completed", "Done.")
            [child] = await engine.service.runs(RunFilter(parent_run_id=RunId(result.run_id)))
            events = engine.events(child.origin.run_id)
            [start] = [event.data async for event in events if isinstance(event.data, RunStart)]
            return start

    start = await scenario()
    assert tool_names(small.requests[0]) == given
    assert small.requests[0].preamble.system.startswith(persona)
    assert bool(start.withheld) == (not given)
    note = describe_event(start)
    assert (note is not None and "tools withheld" in note.text) == (not given)


@pytest.mark.parametrize(("parameters", "recalls"), [(SMALL, False), (LARGE, True)])
async def test_a_small_model_is_shown_no_earlier_answers(tmp_path: Path, parameters: int, recalls: bool) -> None:
    home = size_models(tmp_path, parameters, parameters)
    model = ScriptedModel(say("Warp is blue."), say("Done."))

    async with opened(tmp_path, model) as engine:
        await engine.run(home.agent("default"), "What is warp?", session="one", user="ann")
        result = await engine.run(home.agent("default"), "What is warp?", session="two", user="ann")
        events = [event.data async for event in engine.events(result.run_id)]
    assert any(isinstance(data, MemoryRecalled) for data in events) == recalls
    [start] = [data for data in events if isinstance(data, RunStart)]
    note = describe_event(start)
    assert (note is not None and "nothing recalled" in note.text) != recalls
    assert ("Warp is blue." in str(list(model.requests[1].conversation.messages))) == recalls


async def test_an_agent_that_asks_for_memories_recalls_them_on_a_small_model(tmp_path: Path) -> None:
    home = size_models(tmp_path, SMALL, SMALL)
    spec = home.agent("default")
    asks = msgspec.structs.replace(
        spec, small_models=msgspec.structs.replace(spec.small_models, tools=None, recall=None)
    )
    model = ScriptedModel(say("Warp is blue."), say("Done."))

    async with opened(tmp_path, model) as engine:
        for session in ("one", "two"):
            await engine.run(asks, "What is warp?", session=session, user="ann")
    assert "Warp is blue." in str(list(model.requests[1].conversation.messages))
