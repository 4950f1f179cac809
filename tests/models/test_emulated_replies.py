"""Replies of models that cannot call tools natively: what both formats have in common."""

import pytest

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, delta, event, fragment, usage
from tests.models.chat import ModelEvent, collect, endpoint
from tests.models.described import ADDED, CALL, Read, asked
from treadle.domain.messages import Text, Thinking
from treadle.domain.models import ToolStyle
from treadle.domain.runs import Usage
from treadle.models.emulated_tools.fenced_parser import FencedParser
from treadle.models.emulated_tools.schema_parser import SchemaParser
from treadle.models.emulated_tools.wire_format import encode_request, new_reply
from treadle.models.http.client import ModelClient, WireFormat
from treadle.models.http.transport import Connections
from treadle.models.http.wire import UnusableReply
from treadle.ports.model import CallDelta, Completed, Failed, ReasoningDelta, TextDelta

# ── Both ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("style", "head", "tail"),
    [
        ("schema", '{"answer": "', '"}'),
        ("schema", " " * 100_000 + '{"answer": "', '"}'),
        ("fenced", "", ""),
        ("fenced", "```json\n{", "\n```"),
        ("fenced", "```\n" + "\n" * 100_000, "\n```"),
        ("fenced", " " * 100_000, ""),
    ],
)
def test_a_huge_reply_takes_linear_time(style: ToolStyle, head: str, tail: str) -> None:
    reply = head + "ab\\n" * 25_000 + tail
    reading = SchemaParser(()) if style == "schema" else FencedParser(())
    for character in reply:
        reading.feed(character)
    reading.end("end_turn")
    expected = "ab\n" * 25_000 if style == "schema" else reply
    assert "".join(reading.text) == expected


@pytest.mark.parametrize("style", ["schema", "fenced"])
def test_a_call_that_is_made_natively_is_unusable(style: ToolStyle) -> None:
    read = Read(style, [{"tool_calls": [fragment(0, "c", "add", "{}")]}], "tool_calls", "auto")
    assert not read.shown
    with pytest.raises(UnusableReply, match="set `tools: native`"):
        _ = read.whole


async def converse(style: ToolStyle, *pieces: bytes) -> list[ModelEvent]:
    """Return a reply over the network."""

    connections = Connections()
    async with FakeEndpoint(Answer(pieces)) as server:
        try:
            form = WireFormat("chat_completions", "/chat/completions", encode_request, new_reply)
            return await collect(ModelClient(form, endpoint(server.url), connections), asked(style=style))
        finally:
            await connections.close()


async def test_reasoning_usage_and_unknown_fields_are_read_as_in_any_reply() -> None:
    reply = [
        delta(role="assistant", content=None),
        delta(reasoning_content="Hm."),
        delta(content='{"answer": "4', mood="good"),
        event({"type": "ping"}),
        delta(content='2"}'),
        delta(finish="stop"),
        usage(7, 3, 2),
        DONE,
    ]
    *shown, whole = await converse("schema", *reply)
    assert shown == [ReasoningDelta("Hm."), TextDelta("4"), TextDelta("2")]
    assert whole == Completed(
        (Thinking("Hm.", "", "m-1", field="reasoning_content"), Text("42")), "end_turn", Usage(7, 3, 2)
    )


FENCED = f"```json\n{CALL}\n```"


async def test_a_fenced_call_is_read_from_a_stream() -> None:
    *shown, whole = await converse("fenced", delta(content=f"Sure.\n{FENCED}"), delta(finish="stop"), usage(), DONE)
    assert shown == [TextDelta("Sure."), CallDelta(0, "add", ADDED.arguments)]
    assert whole == Completed((Text("Sure."), ADDED), "tool_use", Usage(10, 5))


@pytest.mark.parametrize(
    ("pieces", "what"),
    [
        ([delta(content='{"answer": "4'), event({"error": {"message": "out of memory"}})], "out of memory"),
        ([delta(content='{"answer": "42"}')], "ended without saying why"),
        (
            [delta(content="42"), delta(finish="stop"), usage(), DONE],
            "neither a call of an allowed tool nor an answer",
        ),
        ([delta(content='{"answer": "\\x'), delta(finish="stop")], "JSON does not allow"),
    ],
)
async def test_a_faulty_reply_is_a_failure_with_its_usage(pieces: list[bytes], what: str) -> None:
    failed = (await converse("schema", *pieces))[-1]
    assert isinstance(failed, Failed)
    assert what in failed.message
    assert failed.usage.output_tokens > 0
