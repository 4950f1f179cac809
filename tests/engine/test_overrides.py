"""Settings that one run overrides, and answers that must match a type."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, opened, virtually
from treadle.api.agent import RunOptions
from treadle.domain.agents import Limits
from treadle.domain.errors import ConfigError, UsageError
from treadle.testing.models import ScriptedModel, Silence, ask, call, say


class Answer(msgspec.Struct):
    n: int
    why: str = ""


class Dated(msgspec.Struct):
    when: Annotated[datetime, msgspec.Meta(tz=True)]


@treadle.tool(effect="read")
async def look(at: str) -> str:
    return f"seen {at}"


def run(model: ScriptedModel, hero: treadle.Agent, **options: Any) -> treadle.Result:
    async def scenario() -> treadle.Result:
        async with in_virtual_time(model) as engine:
            return await engine.run(hero, "go", **options)

    with model:
        return virtually(scenario())


# ── Overrides ──


def test_a_limit_of_one_run_replaces_that_of_the_agent() -> None:
    steps = [ask(call("look", at=str(number))) for number in range(2)]
    result = run(ScriptedModel(*steps), agent(tools=[look]), limits={"max_steps": 2})
    assert (result.outcome, result.metrics.steps) == ("max_steps", 2)


def test_omitted_limits_are_those_of_the_agent() -> None:
    hero = agent(tools=[look], limits={"max_steps": 1})
    result = run(ScriptedModel(ask(call("look", at="a"))), hero, limits={"stuck_steps": 9})
    assert result.outcome == "max_steps"


def test_a_limits_object_replaces_the_agents_limits() -> None:
    hero = agent(tools=[look], limits={"max_steps": 1})
    script = ScriptedModel(ask(call("look", at="a")), say("done"))
    assert run(script, hero, limits=Limits(max_steps=50)).outcome == "completed"


def test_one_run_can_have_its_own_deadline() -> None:
    result = run(ScriptedModel(Silence("so far")), agent(), deadline="2s")
    assert (result.outcome, result.text) == ("deadline", "so far")


def test_tools_of_one_run_replace_those_of_the_agent() -> None:
    @treadle.tool(effect="read")
    async def other() -> str:
        return "other"

    model = ScriptedModel(ask(call("look", at="a"), call("other")), say("done"))
    run(model, agent(tools=[look]), tools=[other])
    assert [tool.name for tool in model.requests[0].preamble.tools] == ["other"]
    assert "There is no tool `look`" in str(model.requests[1].conversation.messages[-1])


async def test_one_run_can_have_its_own_model(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("second", ScriptedModel(say("it is me")))
        result = await engine.run(agent(provider="scripted", model="x"), "go", model="second/y")
        assert result.text == "it is me"


@pytest.mark.parametrize("limits", [{"max_steps": 0}, {"max_stepz": 3}, {"deadline": "soon"}])
async def test_an_invalid_limit_is_refused_with_an_explanation(tmp_path: Path, limits: dict[str, Any]) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(ConfigError, match="agent `hero`"):
            await engine.submit(agent(), "go", **RunOptions(limits=limits))
        assert await engine.service.runs() == []


# ── Output ──


def test_a_typed_answer_is_requested_until_valid_and_returned_as_a_value() -> None:
    model = ScriptedModel(say("forty-two"), say('{"n": 42}'))
    result = run(model, agent(output=Answer))
    assert result.output == Answer(42)
    note = model.requests[1].conversation.messages[-1]
    assert "does not fit the JSON Schema" in note.text
    assert '"n"' in model.requests[0].preamble.system


def test_one_run_can_have_its_own_output_type() -> None:
    assert run(ScriptedModel(say('{"n": 1, "why": "so"}')), agent(), output=Answer).output == Answer(1, "so")


def test_an_output_schema_gives_plain_values() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result = run(ScriptedModel(say("{}"), say('{"n": 1}')), agent(output=schema))
    assert result.text == '{"n": 1}'
    assert result.output == {"n": 1}


def test_any_type_with_a_schema_can_be_an_output_type() -> None:
    assert run(ScriptedModel(say("[1, 2]")), agent(output=list[int])).output == [1, 2]


def test_an_answer_that_the_type_rejects_is_requested_again() -> None:
    model = ScriptedModel(say('{"when": "tomorrow"}'), say('{"when": "2027-01-15T08:00:00Z"}'))
    assert run(model, agent(output=Dated)).output == Dated(datetime(2027, 1, 15, 8, tzinfo=UTC))


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "file:///etc/hostname"}])
async def test_an_invalid_schema_is_refused_before_the_run(tmp_path: Path, schema: dict[str, Any]) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        with pytest.raises(UsageError, match="output"):
            await engine.submit(agent(output=schema), "go")


def test_a_run_that_did_not_complete_has_no_value() -> None:
    result = run(ScriptedModel(say("1"), say("2"), say("3")), agent(output=Answer))
    assert (result.outcome, result.output) == ("failed", None)
