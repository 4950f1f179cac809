"""Pydantic models as arguments and results of tools, and as typed output."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, Field, field_validator

import treadle
from tests.engine.running import opened
from tests.replay.test_replay import same
from treadle.domain.schemas import check_schema
from treadle.ports.tool import InvalidArguments
from treadle.testing.models import ScriptedModel, ask, call, say


class Place(BaseModel):
    city: str
    country: str = "Italy"


class Trip(BaseModel):
    to: Place
    days: int = Field(gt=0)


@treadle.tool
def plan(trip: Trip, others: list[Place] | None = None) -> Trip:
    "Plan a trip."
    return trip.model_copy(update={"days": trip.days + len(others or ())})


def test_the_schema_of_a_model_is_complete_and_its_definitions_are_at_the_top() -> None:
    schema = plan.spec.schema
    check_schema(schema)
    assert "$defs" not in schema["properties"]["trip"]
    assert {name for name in schema["$defs"] if name.endswith("Place")} == {"Trip_Place"}


def test_arguments_are_validated_by_the_model() -> None:
    arguments = plan.parse('{"trip": {"to": {"city": "Rome"}, "days": 2}, "others": [{"city": "Bari"}]}')
    assert arguments.trip == Trip(to=Place(city="Rome"), days=2)
    assert arguments.others == [Place(city="Bari")]
    assert {"Rome", "Italy", "Bari"} <= set(plan.subjects(arguments).texts)
    with pytest.raises(InvalidArguments, match=r"`days`: Input should be greater than 0"):
        plan.parse('{"trip": {"to": {"city": "Rome"}, "days": 0}}')
    with pytest.raises(InvalidArguments, match=r"`to.city`: Field required"):
        plan.parse('{"trip": {"to": {}, "days": 1}}')


class Flight(BaseModel):
    number: str


@treadle.tool
def book(what: Trip | Flight, more: list[Trip | Flight] | None = None) -> str:
    "Book something."
    return repr(what)


def test_a_parameter_may_be_a_union_of_models() -> None:
    check_schema(book.spec.schema)
    arguments = book.parse('{"what": {"number": "LH1"}, "more": [{"to": {"city": "Rome"}, "days": 2}]}')
    assert arguments.what == Flight(number="LH1")
    assert arguments.more == [Trip(to=Place(city="Rome"), days=2)]
    with pytest.raises(InvalidArguments, match=r"`Flight.number`: Field required"):
        book.parse('{"what": {}}')


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [
        (list[Flight], '[{"number": "LH1"}]', [Flight(number="LH1")]),
        (Trip | Flight, '{"number": "LH1"}', Flight(number="LH1")),
        (dict[str, Flight], '{"out": {"number": "LH1"}}', {"out": Flight(number="LH1")}),
    ],
)
async def test_an_output_may_contain_models(output: Any, answer: str, value: Any) -> None:
    async def scenario() -> Any:
        async with treadle.Engine("sqlite:///:memory:") as engine:
            engine.add_model("scripted", ScriptedModel(say(answer)))
            agent = treadle.Agent(name="guide", model="scripted/any", output=output)
            return (await engine.run(agent, "Which?")).output

    assert await scenario() == value


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def check_number(cls, number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number


@dataclass
class EvenNumber:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("must be even")


@pytest.mark.parametrize("output", [Even, EvenNumber])
@pytest.mark.parametrize(("answers", "outcome"), [((1, 2), "completed"), ((1, 3, 5), "failed")])
async def test_an_answer_that_the_type_refuses_is_requested_again(
    tmp_path: Path, output: Any, answers: tuple[int, ...], outcome: str
) -> None:
    model = ScriptedModel(*(say(f'{{"number": {number}}}') for number in answers))
    async with opened(tmp_path, model) as engine:
        agent = treadle.Agent(name="guide", model="scripted/any", output=output)
        result = await engine.run(agent, "Which?")
        assert (result.outcome, len(model.requests)) == (outcome, len(answers))
        assert result.output == (output(number=2) if outcome == "completed" else None)
        assert "must be even" in str(model.requests[1].conversation.messages[-1])
        await same(engine, result.run_id)


async def test_a_run_has_a_typed_output_and_its_tools_have_dependencies() -> None:
    @treadle.tool(effect="read")
    def look_up(context: treadle.ToolContext) -> str:
        "Look up the city."
        return context.deps["city"]

    agent = treadle.Agent(name="guide", model="scripted/any", tools=[plan, look_up], output=Trip)
    assert_type(agent, treadle.Agent[Any, Trip])
    async with treadle.Engine("sqlite:///:memory:", deps={"city": "Rome"}) as engine:
        answer = Trip(to=Place(city="Rome"), days=3)
        model = ScriptedModel(ask(call("look_up")), say(answer.model_dump_json()))
        engine.add_model("scripted", model)
        result = await engine.run(agent, "Where to?")
        assert_type(result.output, Trip | None)
        assert result.output == answer
        assert "Rome" in str(model.requests[1].conversation.messages[-1])


def test_the_library_does_not_import_pydantic() -> None:
    code = "import sys, treadle; treadle.Agent(name='a'); treadle.Engine; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
