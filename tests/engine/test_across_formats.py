"""A run that changes the wire format: the new format gets the whole conversation, without the reasoning of the old
one."""

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests import anthropic_wire, responses_wire
from tests.engine.running import agent, journal
from tests.fake_endpoint import Answer, FakeEndpoint, calls, fragment, refuses, says
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.events import LlmFallback, LlmRequest, LlmResponse
from treadle.domain.messages import Thinking
from treadle.domain.providers import ApiMode

DOWN = refuses(529, anthropic_wire.error("overloaded_error", "Overloaded"), x_should_retry="false")
ODD_ID = "call:odd/1"  # legal in one format, not in another


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


def make_call_reply(mode: ApiMode) -> Answer:
    """A reply that reasons and calls `look`, in the words of a format."""
    match mode:
        case "anthropic_messages":
            blocks = (
                anthropic_wire.thinking(0, "Let me think."),
                anthropic_wire.asks(1, "toolu_1", "look", '{"place": "hall"}'),
            )
            return Answer(anthropic_wire.stream(*blocks, stop="tool_use"))
        case "chat_completions":
            return calls(fragment(0, ODD_ID, "look", '{"place": "hall"}'))
        case "responses":
            items = (
                responses_wire.reasoning("Let me think.", sealed="c2VhbGVk"),
                responses_wire.call("call_1", "look", '{"place": "hall"}'),
            )
            return Answer(responses_wire.wire(*responses_wire.replied(*items)))


def answers(mode: ApiMode) -> Answer:
    match mode:
        case "anthropic_messages":
            return anthropic_wire.says("Nothing there.")
        case "chat_completions":
            return says("Nothing there.")
        case "responses":
            item = responses_wire.message("Nothing there.")
            return Answer(responses_wire.wire(*responses_wire.replied(item)))


async def exchange(tmp_path: Path, first: ApiMode, second: ApiMode) -> tuple[list[Any], Any, treadle.Result]:
    """The events of the run, what the second model was sent, and the result."""

    async with FakeEndpoint(make_call_reply(first), DOWN) as one, FakeEndpoint(answers(second)) as two:
        engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path / "home"))
        engine.add_provider("one", base_url=one.url, api_mode=first, api_key="sk-one-1234")
        engine.add_provider("two", base_url=two.url, api_mode=second, api_key="sk-two-1234")
        async with engine:
            hero = agent(model="one/m", fallbacks=["two/n"], tools=[look], retry={"attempts": 0})
            result = await engine.run(hero, "What is in the hall?")
            events = [event.data for event in await journal(engine, result.run_id)]
        return events, two.requests[0].json, result


MODES: tuple[ApiMode, ...] = ("anthropic_messages", "chat_completions", "responses")


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
async def test_a_run_continues_in_another_wire_format(tmp_path: Path, first: ApiMode, second: ApiMode) -> None:
    events, sent, result = await exchange(tmp_path, first, second)
    assert (result.outcome, result.text) == ("completed", "Nothing there.")
    assert [data.provider for data in events if isinstance(data, LlmRequest)] == ["one", "one", "two"]
    assert len([data for data in events if isinstance(data, LlmFallback)]) == 1
    thought = [
        part
        for data in events
        if isinstance(data, LlmResponse)
        for part in data.parts
        if isinstance(part, Thinking)
    ]
    assert len(thought) == (first != "chat_completions"), "it is kept in the journal"
    body = json.dumps(sent)
    assert "Let me think." not in body
    assert "c2VhbGVk" not in body
    assert "nothing in hall" in body
    used, answered = ids(second, sent)
    assert used == answered
    assert all(each.replace("_", "").replace("-", "").isalnum() for each in used) or second == "chat_completions"


def ids(mode: ApiMode, sent: Any) -> tuple[list[str], list[str]]:
    """The ids of the calls that were sent, and of the results."""
    match mode:
        case "anthropic_messages":
            blocks = [block for message in sent["messages"] for block in message["content"]]
            return (
                [block["id"] for block in blocks if block["type"] == "tool_use"],
                [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
            )
        case "chat_completions":
            messages = sent["messages"]
            return (
                [call["id"] for message in messages for call in message.get("tool_calls", ())],
                [message["tool_call_id"] for message in messages if message["role"] == "tool"],
            )
        case "responses":
            items = sent["input"]
            return (
                [item["call_id"] for item in items if item.get("type") == "function_call"],
                [item["call_id"] for item in items if item.get("type") == "function_call_output"],
            )


@pytest.mark.parametrize("mode", ["anthropic_messages", "responses"])
async def test_reasoning_is_sent_back_only_to_its_own_model(tmp_path: Path, mode: ApiMode) -> None:
    async def run() -> Any:
        async with FakeEndpoint(make_call_reply(mode), answers(mode)) as server:
            engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path / "home"))
            engine.add_provider("one", base_url=server.url, api_mode=mode, api_key="sk-one-1234")
            async with engine:
                await engine.run(agent(model="one/m", tools=[look]), "What is in the hall?")
            return server.requests[1].json

    body = json.dumps(await run())
    assert "Let me think." in body
    assert ("c2VhbGVk" if mode == "responses" else "c2ln") in body
