"""The output schema that a provider constrains answers to, in whole runs: with and without tools, after a refusal,
with another model, in a fork, and after a restart."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.engine.running import agent, journal
from tests.fake_endpoint import (
    DONE,
    Answer,
    Behaviour,
    FakeEndpoint,
    Policy,
    Request,
    calls,
    fragment,
    refuses,
    says,
)
from tests.fake_endpoint import delta as piece
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import LlmError, LlmFallback, LlmRetry
from treadle.domain.ids import RunId
from treadle.domain.models import ModelFacts, StructuredOutput, ToolStyle


class Article(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    words: int


ANSWER = '{"title": "Looms", "words": 3}'
LOOKS = calls(fragment(0, "call_1", "look", '{"place": "hall"}'))
REFUSAL = refuses(400, {"error": {"message": "response_format is not supported."}})


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def open_engine(
    folder: Path, url: str, when: StructuredOutput | None = "always", tools: ToolStyle | None = None
) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    facts = {"fake/m": ModelFacts(structured_output=when, tools=tools)}
    engine.models.catalog.reconfigure({}, facts)
    engine.add_provider("fake", base_url=url, api_mode="chat_completions", api_key="sk-fake-1234")
    return engine


class Ran:
    """A run and what it sent."""

    def __init__(self, result: treadle.Result[Any], requests: list[Request], events: list[Any]) -> None:
        self.result = result
        self.bodies = [request.json for request in requests]
        self.events = events

    @property
    def constrained(self) -> list[bool]:
        """For each request, whether it carried the schema."""
        return ["response_format" in body for body in self.bodies]

    @property
    def prompts(self) -> list[bool]:
        """For each request, whether the schema is in the prompt."""
        return ['"words"' in body["messages"][0]["content"] for body in self.bodies]


async def run(
    folder: Path,
    *script: Behaviour,
    when: StructuredOutput | None = "always",
    style: ToolStyle | None = None,
    policy: Policy | None = None,
    **fields: Any,
) -> Ran:
    async with (
        FakeEndpoint(*script, policy=policy) as server,
        open_engine(folder, server.url, when, style) as engine,
    ):
        hero = agent(**{"model": "fake/m", "output": Article, "retry": {"attempts": 0}, **fields})
        result = await engine.run(hero, "Write.")
        events = [event.data for event in await journal(engine, result.run_id)]
        replayed = await engine.service.replay(RunId(result.run_id))
        assert replayed.is_same, replayed
    return Ran(result, server.requests, events)


async def test_every_request_carries_the_schema(tmp_path: Path) -> None:
    ran = await run(tmp_path, LOOKS, says(ANSWER), tools=[look])
    assert ran.result.output == Article("Looms", 3)
    assert ran.constrained == [True, True]
    assert ran.prompts == [True, True]
    sent = ran.bodies[0]["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"], sent["schema"]["title"]) == ("answer", True, "Article")


@pytest.mark.parametrize(
    ("when", "style", "constrained"),
    [
        ("without_tools", None, [False, False]),
        ("never", None, [False, False]),
        (None, None, [False, False]),
    ],
)
async def test_a_schema_that_prevents_calls_is_not_sent_with_tools(
    tmp_path: Path, when: StructuredOutput | None, style: ToolStyle | None, constrained: list[bool]
) -> None:
    ran = await run(tmp_path, LOOKS, says(ANSWER), tools=[look], when=when, style=style)
    assert ran.result.output == Article("Looms", 3)
    assert (ran.constrained, ran.prompts) == (constrained, [True, True])


async def test_calls_that_are_written_as_text_prevent_the_schema(tmp_path: Path) -> None:
    written = '```json\n{"tool": "look", "arguments": {"place": "hall"}}\n```'
    ran = await run(tmp_path, says(written), says(ANSWER), tools=[look], style="fenced")
    assert ran.result.output == Article("Looms", 3)
    assert ran.constrained == [False, False]


async def test_without_tools_the_schema_is_sent(tmp_path: Path) -> None:
    ran = await run(tmp_path, says(ANSWER), when="without_tools")
    assert (ran.result.output, ran.constrained) == (Article("Looms", 3), [True])


async def test_an_agent_without_an_output_sends_none(tmp_path: Path) -> None:
    ran = await run(tmp_path, says("Hello."), output=None)
    assert ran.constrained == [False]


async def test_an_answer_with_a_marker_is_not_constrained(tmp_path: Path) -> None:
    """It is not the JSON value alone."""
    ran = await run(tmp_path, policy=lambda _: says(f"{ANSWER} DONE"), loop={"final_marker": "DONE"})
    assert not any(ran.constrained)


async def test_a_refused_schema_is_left_out_for_the_rest_of_the_run(tmp_path: Path) -> None:
    ran = await run(tmp_path, REFUSAL, LOOKS, says(ANSWER), tools=[look])
    assert ran.result.output == Article("Looms", 3)
    assert (ran.constrained, ran.prompts) == ([True, False, False], [True] * 3)
    [error] = [data for data in ran.events if isinstance(data, LlmError)]
    [retry] = [data for data in ran.events if isinstance(data, LlmRetry)]
    assert (error.refuses_schema, retry.unconstrained, retry.delay_ms) == (True, True, 0)


async def test_a_second_refusal_ends_the_run(tmp_path: Path) -> None:
    ran = await run(tmp_path, REFUSAL, REFUSAL)
    assert (ran.result.outcome, ran.constrained) == ("model_error", [True, False])
    assert "response_format is not supported" in ran.result.reason


async def test_an_answer_that_does_not_fit_is_still_refused(tmp_path: Path) -> None:
    """The provider's constraint does not replace the validation."""
    ran = await run(tmp_path, says('{"title": 1}'), says(ANSWER))
    assert ran.result.output == Article("Looms", 3)
    assert ran.constrained == [True, True]
    assert "does not fit the JSON Schema" in json.dumps(ran.bodies[1]["messages"][-1])


async def test_the_rest_of_an_answer_that_was_cut_is_not_constrained(tmp_path: Path) -> None:
    """A constraint would have the model begin another value."""
    cut = Answer([piece(content='{"title": "Lo'), piece(finish="length"), DONE])
    ran = await run(tmp_path, cut, says('oms", "words": 3}'))
    assert ran.result.output == Article("Looms", 3)
    assert ran.constrained == [True, False]


async def test_a_fallback_without_the_feature_has_the_schema_in_its_prompt(tmp_path: Path) -> None:
    down = refuses(401, {"error": {"message": "invalid key"}})
    ran = await run(tmp_path, down, says(ANSWER), fallbacks=["fake/other"])
    assert ran.result.output == Article("Looms", 3)
    assert [body["model"] for body in ran.bodies] == ["m", "other"]
    assert (ran.constrained, ran.prompts) == ([True, False], [True, True])
    assert any(isinstance(data, LlmFallback) for data in ran.events)


async def test_a_fork_does_not_repeat_a_refused_schema(tmp_path: Path) -> None:
    async with FakeEndpoint(REFUSAL, LOOKS, says(ANSWER), says(ANSWER)) as server:
        async with open_engine(tmp_path, server.url) as engine:
            hero = agent(model="fake/m", output=Article, tools=[look])
            result = await engine.run(hero, "Write.")
        async with open_engine(tmp_path, server.url) as engine:  # another process
            engine.add_tools(look)
            forked = await engine.wait(await engine.fork(result.run_id, step=2), Article)
    assert forked.output == Article("Looms", 3)
    assert ["response_format" in request.json for request in server.requests] == [True, False, False, False]


async def test_the_output_of_one_run_is_sent_too(tmp_path: Path) -> None:
    async with FakeEndpoint(says(ANSWER)) as server, open_engine(tmp_path, server.url) as engine:
        result = await engine.run(agent(model="fake/m"), "Write.", output=Article)
    assert result.output == Article("Looms", 3)
    assert "response_format" in server.requests[0].json
