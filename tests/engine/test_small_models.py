"""A run on a model that is too small for tools."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import opened
from treadle.config.home import SMALL_MODEL_PERSONA, Home
from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunStart
from treadle.ports.model import ModelRequest
from treadle.surfaces.cli.activity import activity
from treadle.testing.models import ScriptedModel, say


def run_on(
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

    start = asyncio.run(scenario())
    return model.requests[0], start


def test_the_default_agent_has_no_tools_on_a_small_model_and_says_so_in_one_line(tmp_path: Path) -> None:
    request, start = run_on(tmp_path, 135_000_000)
    assert (request.preamble.tools, request.preamble.system) == ((), SMALL_MODEL_PERSONA)
    assert "bash" in start.withheld
    line = activity(start)
    assert line is not None
    assert "\n" not in line
    assert f"{len(start.withheld)} tools withheld" in line
    assert "--tools @small" in line


def test_a_larger_model_gets_the_tools_without_a_line(tmp_path: Path) -> None:
    request, start = run_on(tmp_path, 1_000_000_000)
    assert "bash" in {tool.name for tool in request.preamble.tools}
    assert (start.withheld, start.persona, activity(start)) == ((), None, None)


@pytest.mark.parametrize("asked", [["@small"], ["read_file"], ["bash", "read_file"]])
def test_tools_that_are_asked_for_are_given(tmp_path: Path, asked: list[str]) -> None:
    request, start = run_on(tmp_path, 135_000_000, tools=asked)
    assert request.preamble.tools
    assert start.withheld == ()


def test_an_agent_that_names_its_tools_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "agents" / "own"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: own\ntools: [read_file]\n")
    request, start = run_on(tmp_path, 135_000_000, "own")
    assert [tool.name for tool in request.preamble.tools] == ["read_file"]
    assert start.withheld == ()


def test_a_program_gives_a_small_model_the_tools_of_its_agent() -> None:
    spec = treadle.Agent(name="own", model="local/smollm2", tools=["read_file"]).spec
    assert spec.small_models.tools is None
