"""Replies with very many tool calls, in every wire format: the excess is dropped while it arrives."""

from pathlib import Path

import pytest

import treadle
from tests.engine.running import journal
from tests.fake_endpoint import Answer, FakeEndpoint, says
from tests.limits.replies import FLOODS, chat_stream, chat_text, event, read_reply, request, written_calls
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain import events as e
from treadle.domain.messages import ToolUse
from treadle.domain.models import Profile
from treadle.models.emulated_tools.wire_format import new_reply
from treadle.models.http.sse import PayloadParser
from treadle.models.http.wire import UnusableReply


@pytest.mark.parametrize("name", FLOODS)
def test_calls_beyond_the_limit_are_counted_and_not_stored(name: str) -> None:
    mode, make = FLOODS[name]
    read = read_reply(mode, make(2000))
    calls = [part for part in read.whole.parts if isinstance(part, ToolUse)]
    assert [call.arguments for call in calls] == [f'{{"a":{number}}}' for number in range(128)]
    assert read.whole.excess_calls == 2000 - 128
    assert max(getattr(delta, "index", 0) for delta in read.shown) == 127, "the excess is not shown either"


@pytest.mark.parametrize("name", FLOODS)
def test_ten_times_the_calls_cost_about_ten_times_as_much(name: str) -> None:
    mode, make = FLOODS[name]
    few = max(min(read_reply(mode, make(2000)).seconds for _ in range(3)), 0.001)
    many = min(read_reply(mode, make(20_000)).seconds for _ in range(3))
    assert many < 60 * few, "CPU time; it would be 100 times as much if each call cost as much as all before it"


@pytest.mark.parametrize("index", [0, None])
def test_fragments_of_dropped_calls_never_reach_a_stored_call(index: int | None) -> None:
    read = read_reply("chat_completions", chat_stream(300, indexes=[index] * 300))
    assert [part.arguments for part in read.whole.parts if isinstance(part, ToolUse)] == [
        f'{{"a":{number}}}' for number in range(128)
    ]
    assert read.whole.excess_calls == 300 - 128


def test_calls_that_a_model_writes_in_its_text_have_the_same_limit() -> None:
    asked = request(profile=Profile(call_dialect="hermes"))
    read = read_reply("chat_completions", chat_text(written_calls(300)), asked)
    assert (len(read.whole.parts), read.whole.excess_calls) == (128, 172)
    fenced = '```json\n{"tool": "add", "arguments": {"a": 1}}\n```\n' * 300
    asked = request(profile=Profile(tools="fenced"))
    reply = new_reply(asked)
    reply.feed(PayloadParser().feed(chat_text(fenced)))
    whole = reply.finish(100)
    assert (len(whole.parts), whole.excess_calls) == (128, 172)


async def test_a_run_records_the_dropped_calls_in_one_event_and_tells_the_model(tmp_path: Path) -> None:
    @treadle.tool
    def add(a: int) -> str:
        """Add."""
        return f"sum {a}"

    flood = Answer([chat_stream(3000)])
    async with FakeEndpoint(flood, says("Done.")) as endpoint:
        home = Home(tmp_path / "home")
        home.ensure()
        providers = f"{{providers: {{fake: {{base_url: '{endpoint.url}', api_key: x}}}}}}"
        (home.path / "config.yaml").write_text(providers)
        async with create_engine(home=home) as engine:
            result = await engine.run(treadle.Agent(name="a", model="fake/m", tools=[add]), "Go.")
            assert result.text == "Done."
            events, requests = [event.data for event in await journal(engine, result.run_id)], endpoint.requests
    [dropped] = [data for data in events if isinstance(data, e.CallsDropped)]
    assert (dropped.step, dropped.dropped, dropped.limit) == (1, 2872, 128)
    assert sum(isinstance(data, e.ToolCallError) for data in events) == 0
    assert len([data for data in events if isinstance(data, e.ToolCallEnd)]) == 128
    assert "yours had 3000. The last 2872 were dropped and not run." in str(requests[1].body)


def test_a_reply_with_too_many_parts_is_refused() -> None:
    blocks = b"".join(
        event(type="content_block_start", index=n, content_block={"type": "text", "text": "x"}) for n in range(4001)
    )
    with pytest.raises(UnusableReply, match="more than 4000 parts"):
        read_reply("anthropic_messages", blocks)
