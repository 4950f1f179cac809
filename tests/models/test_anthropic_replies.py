"""What the anthropic_messages adapter makes of replies."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.anthropic_wire import (
    PING,
    STOP,
    asks,
    begins,
    closes,
    completed,
    converse,
    endpoint,
    ends,
    event,
    events_of,
    more,
    opens,
    redacted,
    says,
    stream,
    text,
    thinking,
)
from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, refuses
from tests.models.chat import HELLO
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.formats.anthropic_messages import FORMAT, encode_request
from treadle.models.formats.anthropic_reply import AnthropicReply
from treadle.models.http.client import ModelClient
from treadle.models.http.sse import PayloadParser
from treadle.models.http.transport import Connections
from treadle.models.http.wire import UnusableReply
from treadle.ports.model import CallDelta, Completed, Model, ReasoningDelta, TextDelta
from treadle.testing.conformance import model as conformance
from treadle.testing.conformance.model import (
    ModelCheck,
    ProviderAction,
    ProviderBreak,
    ProviderCalls,
    ProviderRefusal,
    ProviderSilence,
    ProviderText,
)


def test_a_plain_answer_is_streamed_and_completed() -> None:
    events = events_of(
        Answer([begins(12), PING, opens(0, "text", text=""), *text(0, "Hel", "lo")[1:], ends(tokens=3), STOP])
    )
    assert events == [TextDelta("Hel"), TextDelta("lo"), Completed((Text("Hello"),), "end_turn", Usage(12, 3))]


def test_parallel_calls_are_read_in_order() -> None:
    events = events_of(
        Answer(
            stream(
                text(0, "Let me see."),
                asks(1, "toolu_1", "add", "", '{"a"', ":1}"),
                asks(2, "toolu_2", "now", ""),
                stop="tool_use",
            )
        )
    )
    shown: dict[tuple[int, str], str] = {}
    for part in events:  # how many there are depends on how the network cuts the stream
        if isinstance(part, CallDelta):
            shown[part.index, part.name] = shown.get((part.index, part.name), "") + part.arguments
    assert shown == {(0, "add"): '{"a":1}', (1, "now"): ""}
    assert events[-1] == Completed(
        (Text("Let me see."), ToolUse("toolu_1", "add", '{"a":1}'), ToolUse("toolu_2", "now", "{}")),
        "tool_use",
        Usage(10, 5),
    )


def test_interleaved_blocks_are_assembled_by_index() -> None:
    """Their pieces go where their index says; they stand in the order in which they began."""
    first, second = asks(0, "a", "add", '{"n":', "1}"), asks(1, "b", "add", '{"n":', "2}")
    mixed = [first[0], second[0], second[1], first[1], first[2], second[2], second[3], first[3]]
    assert completed(*stream(mixed, stop="tool_use")).parts == (
        ToolUse("a", "add", '{"n":1}'),
        ToolUse("b", "add", '{"n":2}'),
    )


def test_blocks_that_share_an_index_stay_separate() -> None:
    parts = completed(*stream(text(0, "a"), asks(0, "x", "add", "{}"), asks(0, "y", "add", "{}"))).parts
    assert parts == (Text("a"), ToolUse("x", "add", "{}"), ToolUse("y", "add", "{}"))


def test_thinking_keeps_its_signature_and_position() -> None:
    events = events_of(
        Answer(
            stream(
                thinking(0, "h", "m", signature="czE="),
                redacted(1, "b3BhcXVl"),
                text(2, "So:"),
                thinking(3, "again", signature="czI="),
                asks(4, "c", "add", "{}"),
                stop="tool_use",
            )
        )
    )
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.parts == (
        Thinking("hm", "fake", "m-1", signature="czE="),
        Thinking("", "fake", "m-1", sealed="b3BhcXVl"),
        Text("So:"),
        Thinking("again", "fake", "m-1", signature="czI="),
        ToolUse("c", "add", "{}"),
    )
    assert "".join(part.text for part in events if isinstance(part, ReasoningDelta)) == "hmagain"
    assert "".join(part.text for part in events if isinstance(part, TextDelta)) == "So:"


def test_thinking_without_text_keeps_its_signature() -> None:
    """Without words, and with the signature by which it is known again."""
    assert completed(*stream(thinking(0), text(1, "x"))).parts[0] == Thinking("", "fake", "m-1", signature="c2ln")


def test_thinking_without_a_signature_is_kept_and_marked() -> None:
    last = completed(*stream(thinking(0, "hm", signature=None), text(1, "x")))
    assert last.parts == (Thinking("hm", "fake", "m-1", "", field="thinking"), Text("x"))
    unsigned = [opens(0, "thinking", thinking="hm"), closes(0)]
    assert completed(*stream(unsigned, text(1, "x"))).parts[0] == Thinking("hm", "fake", "m-1", field="thinking")


def test_blocks_without_content_are_dropped() -> None:
    last = completed(*stream(thinking(0, signature=None), text(1), redacted(2, ""), text(3, "")))
    assert last.parts == ()


def test_text_in_the_first_event_of_a_block_is_kept() -> None:
    begun = [opens(0, "text", text="Hel"), more(0, "text_delta", text="lo"), closes(0)]
    thought = [
        opens(1, "thinking", thinking="h", signature="s"),
        more(1, "thinking_delta", thinking="m"),
        closes(1),
    ]
    asked = [opens(2, "tool_use", id="c", name="add", input={"a": [1.5]}), closes(2)]
    again = [*asks(3, "d", "add", '{"a":2}')]
    again[0] = opens(3, "tool_use", id="d", name="add", input={"a": 2})  # and then in pieces
    events = events_of(Answer(stream(begun, thought, asked, again, stop="tool_use")))
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.parts == (
        Text("Hello"),
        Thinking("hm", "fake", "m-1", signature="s"),
        ToolUse("c", "add", '{"a":[1.5]}'),
        ToolUse("d", "add", '{"a":2}'),
    )
    assert "".join(part.text for part in events if isinstance(part, TextDelta)) == "Hello"


def test_text_is_shown_event_by_event() -> None:
    """Each piece once, under the call it belongs to; and nothing for events that bring none."""
    reply, shown = AnthropicReply(HELLO), list[list[Any]]()
    at_once = [opens(2, "tool_use", id="d", name="now", input={"a": 1}), closes(2)]
    for one in [*text(0, "a", "", "b"), *asks(1, "c", "add", "", "{", "}"), *at_once, *thinking(3, "h"), PING]:
        reply.feed(PayloadParser().feed(one))
        shown.append([])
        reply.show_new(shown[-1].append)
    assert shown == [
        *([], [TextDelta("a")], [], [TextDelta("b")], []),
        *([CallDelta(0, "add", "")], [], [CallDelta(0, "add", "{")], [CallDelta(0, "add", "}")], []),
        *([CallDelta(1, "now", "")], [CallDelta(1, "now", '{"a":1}')]),
        *([], [ReasoningDelta("h")], [], [], []),
    ]


def test_blank_arguments_are_an_empty_object() -> None:
    assert completed(*stream(asks(0, "c", "now", " ", "\n"), stop="tool_use")).parts == (ToolUse("c", "now", "{}"),)


# ── How it ends ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "stop", "raw"),
    [
        ("end_turn", "end_turn", None),
        ("stop_sequence", "end_turn", None),
        ("max_tokens", "max_tokens", None),
        ("model_context_window_exceeded", "max_tokens", None),
        ("refusal", "refusal", None),
        ("tool_use", "other", "tool_use"),
        ("pause_turn", "max_tokens", "pause_turn"),
        ("flux_capacitor", "other", "flux_capacitor"),
        (None, "other", "null"),
    ],
)
def test_each_stop_reason_is_translated(said: str | None, stop: str, raw: str | None) -> None:
    last = completed(*stream(text(0, "x"), stop=said))
    assert (last.parts, last.stop, last.raw_stop) == ((Text("x"),), stop, raw)


def test_the_last_reported_stop_reason_and_usage_count() -> None:
    """What is said last counts; what is not said again stays."""
    last = completed(
        begins(), *text(0, "x"), ends("max_tokens"), ends(None, tokens=7), ends(None, tokens=None), STOP
    )
    assert (last.stop, last.usage) == ("max_tokens", Usage(10, 7))


def test_data_after_the_last_event_is_ignored() -> None:
    late = b"".join([STOP, *text(1, "late"), event("error", error={"type": "api_error"}), ends("refusal"), b"{\n"])
    last = completed(begins(), *text(0, "x"), ends(), late)
    assert (last.parts, last.stop) == ((Text("x"),), "end_turn")


def test_calls_with_the_stop_reason_end_turn_still_run() -> None:
    last = completed(*stream(asks(0, "c", "add", "{}")))
    assert (last.parts, last.stop) == ((ToolUse("c", "add", "{}"),), "tool_use")


DETAILS = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}


@pytest.mark.parametrize(
    ("blocks", "details", "parts"),
    [
        ([], DETAILS, (Text("It could do harm."),)),
        ([text(0, "Sure")], DETAILS, (Text("Sure"), Text("\n\nIt could do harm."))),
        ([text(0, "Sure")], None, (Text("Sure"),)),
        ([text(0, "Sure")], {"type": "refusal", "explanation": None}, (Text("Sure"),)),
        (
            [thinking(0, "hm")],
            DETAILS,
            (Thinking("hm", "fake", "m-1", signature="c2ln"), Text("It could do harm.")),
        ),
        ([], None, ()),
    ],
)
def test_a_refusal_shows_its_explanation(blocks: list[list[bytes]], details: Any, parts: tuple[Part, ...]) -> None:
    events = events_of(Answer(stream(*blocks, stop="refusal", details=details)))
    assert events[-1] == Completed(parts, "refusal", Usage(10, 5))
    shown = "".join(part.text for part in events if isinstance(part, TextDelta))
    assert shown == "".join(part.text for part in parts if isinstance(part, Text))


def test_an_explanation_of_another_stop_is_not_text_of_the_model() -> None:
    assert completed(*stream(text(0, "x"), details=DETAILS)).parts == (Text("x"),)


@pytest.mark.parametrize("arguments", ['{"n": 1}', '{"n": '])
def test_calls_that_were_refused_are_not_run(arguments: str) -> None:
    last = completed(*stream(text(0, "x"), asks(1, "c", "add", arguments), stop="refusal"))
    assert (last.parts, last.stop) == ((Text("x"),), "refusal")


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("cut", ['{"n": ', "", " ", "{"])
def test_the_calls_of_a_reply_that_was_cut_are_left_out(stop: str, cut: str) -> None:
    last = completed(*stream(text(0, "x"), asks(1, "a", "add", "{}"), asks(2, "b", "add", cut), stop=stop))
    assert (last.parts, last.stop, last.dropped_calls) == ((Text("x"),), "max_tokens", ("add", "add"))


def test_a_complete_call_of_a_reply_that_was_cut_is_left_out_too() -> None:
    last = completed(*stream(asks(0, "a", "add", '{"n": 1}'), stop="max_tokens"))
    assert (last.parts, last.stop, last.dropped_calls) == ((), "max_tokens", ("add",))


# ── Tokens ─────────────────────────────────────────────────────────────────────────────────────────

CACHE: dict[str, Any] = {"cache_read_input_tokens": 200, "cache_creation_input_tokens": 30}


@pytest.mark.parametrize(
    ("start", "end", "usage"),
    [
        (begins(10, **CACHE), ends(tokens=5), Usage(240, 5, 200, 30)),
        (begins(10), ends(tokens=5, input_tokens=12, **CACHE), Usage(242, 5, 200, 30)),
        (begins(0, **CACHE), ends(tokens=5), Usage(230, 5, 200, 30)),
        (begins(10, **CACHE), ends(tokens=5, input_tokens=0, cache_read_input_tokens=0), Usage(240, 5, 200, 30)),
        (begins(0), ends(tokens=5, input_tokens=12), Usage(12, 5)),
        (begins(10, cache_read_input_tokens=None, service_tier="standard"), ends(tokens=0), Usage(10, 1)),
    ],
)
def test_usage_counts_the_whole_prompt(start: bytes, end: bytes, usage: Usage) -> None:
    assert completed(start, *text(0, "x"), end, STOP).usage == usage


def test_usage_is_estimated_if_it_is_missing() -> None:
    sent = -(-len(encode_request(HELLO)) // 4)
    words = "x" * 41
    assert completed(begins(None), *text(0, words), ends(tokens=None), STOP).usage == Usage(
        sent, 11, estimated=True
    )
    assert completed(begins(0), *text(0, words), ends(tokens=7), STOP).usage == Usage(sent, 11, estimated=True)
    assert completed(begins(9), *text(0, words), ends(tokens=None), STOP).usage == Usage(9, 11, estimated=True)
    said = begins(9, output_tokens=50)
    assert completed(said, *text(0, words), ends(tokens=None), STOP).usage == Usage(9, 50, estimated=True)


# ── Unknown data ──────────────────────────────────────────────────────────────────────────────────


def test_unknown_events_blocks_and_deltas_are_ignored() -> None:
    """Some of them with fields that mean something else here; none of them is shown, and none does any harm."""
    events = events_of(
        Answer(
            [
                event("session_start", index="first", delta="x", content_block=7, usage=[], message=[1]),
                begins(),
                PING,
                b'event: odd\ndata: {"no": "type"}\n\n',
                b"event: empty\ndata: {}\n\n",
                opens(0, "server_tool_use", id="s", name="web_search", input={}),
                more(0, "input_json_delta", partial_json='{"query": '),
                closes(0),
                opens(1, "web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
                closes(1),
                opens(2, "hologram", data={"x": 1}, text=["no", "text"]),
                more(2, "hologram_delta", text={"no": "text"}),
                more(2, "text_delta", text="not in a text"),
                event("content_block_wobble", index=2, delta=["what"]),
                event("content_block_start", index=[2], content_block={"type": "hologram", "text": 7}),
                closes(2),
                opens(7, "letter", text="dear", thinking="hm", name="add", input={"a": 1}),
                closes(7),
                opens(3, "text", text=""),
                more(3, "text_delta", text="x"),
                more(3, "citations_delta", citation={"cited_text": "y"}),
                more(3, "wobble_delta", text="z"),
                more(3, "thinking_delta", thinking="not here"),
                event("content_block_delta", index=3),
                closes(3),
                event("content_block_start", index=4),
                closes(4),
                closes(99),
                ends(context_management={"applied_edits": []}),
                STOP,
            ]
        )
    )
    assert events == [TextDelta("x"), Completed((Text("x"),), "end_turn", Usage(10, 5))]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KINDS = ["text", "thinking", "redacted_thinking", "tool_use", "text_delta", "input_json_delta", "signature_delta"]
INNER = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(KINDS) | JSON,
        **dict.fromkeys(("text", "thinking", "signature", "partial_json", "data", "id", "name", "input"), JSON),
        "stop_reason": st.sampled_from(["refusal", "max_tokens"]) | JSON,
        "stop_details": JSON | st.fixed_dictionaries({"explanation": JSON}),
    },
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "index": st.integers(0, 2) | JSON,
    "content_block": INNER | JSON,
    "delta": INNER | JSON,
    "usage": JSON | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), JSON),
    "message": JSON | st.fixed_dictionaries({"usage": JSON}),
    "content": JSON | st.lists(INNER, max_size=3),
}
KNOWN = [
    "content_block_start", "content_block_delta", "content_block_stop",
    "message_start", "message_delta", "message_stop", "message",
]  # fmt: skip


@given(
    st.text(max_size=8).filter(lambda kind: kind not in (*KNOWN, "error")),
    st.fixed_dictionaries({}, optional=FIELDS),
)
def test_unknown_events_may_have_any_structure(kind: str, fields: dict[str, Any]) -> None:
    reply = AnthropicReply(HELLO)
    for one in stream(text(0, "x")):
        reply.feed(PayloadParser().feed(event(kind, **fields)))
        reply.feed(PayloadParser().feed(one))
    assert reply.finish(0) == Completed((Text("x"),), "end_turn", Usage(10, 5))


@given(st.lists(st.tuples(st.sampled_from(KNOWN), st.fixed_dictionaries({}, optional=FIELDS)), max_size=6))
def test_known_events_may_have_unknown_fields(events: list[tuple[str, dict[str, Any]]]) -> None:
    """Whatever they hold, the end is a reply whose calls can be run, or the word that it cannot be used."""
    reply = AnthropicReply(HELLO)
    try:
        for kind, fields in [*events, ("message_stop", {})]:
            reply.feed(PayloadParser().feed(event(kind, **fields)))
            reply.show_new(lambda _: None)
        parts = reply.finish(0).parts
    except UnusableReply:
        reply.usage(0)
    else:
        assert all(
            part.name and isinstance(json.loads(part.arguments), dict)
            for part in parts
            if isinstance(part, ToolUse)
        )


def test_a_call_inside_text_stays_text() -> None:
    words = '<tool_use>{"type":"tool_use","name":"add","input":{}}</tool_use>'
    last = completed(*stream(text(0, words)))
    assert (last.parts, last.stop) == ((Text(words),), "end_turn")


def test_calls_without_ids_and_with_one_id_pass_through() -> None:
    last = completed(
        *stream(asks(0, "", "a", "{}"), asks(1, "same", "a", "{}"), asks(2, "same", "b", "{}"), stop="tool_use")
    )
    assert last.parts == (ToolUse("", "a", "{}"), ToolUse("same", "a", "{}"), ToolUse("same", "b", "{}"))
    no_id = [opens(0, "tool_use", name="a"), closes(0)]
    assert completed(*stream(no_id, stop="tool_use")).parts == (ToolUse("", "a", "{}"),)


# ── The bytes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_reply_is_the_same_for_any_split_of_the_bytes(size: int, line_end: bytes) -> None:
    body = b": comment\n\n" + b"".join(
        stream(text(0, "grüße 🎈", "日本"), asks(1, "c", "add", '{"ü":', '"🎈"}'), stop="tool_use")
    )
    body = body.replace(b"data: ", b": another\nid: 7\nretry: 10\ndata: ").replace(b"\n", line_end)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert completed(*pieces).parts == (Text("grüße 🎈日本"), ToolUse("c", "add", '{"ü":"🎈"}'))


def test_names_of_events_and_the_last_blank_line_may_be_missing() -> None:
    body = b"".join(line for line in b"".join(stream(text(0, "x"))).splitlines(True) if line[:6] != b"event:")
    assert completed(body.rstrip()).parts == (Text("x"),)


def test_lone_surrogates_become_the_replacement_character() -> None:
    """In text, in the arguments of a call, and in an event that is not otherwise of interest."""
    cut = b'event: x\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}\n\n'
    begun = [opens(0, "text", text=""), cut % rb"a\ud800b \ud83c\udf88", closes(0)]
    call = asks(1, "c", "add", '{"n": "\\ud8', '00"}')
    odd = b'event: odd\ndata: {"type":"odd\\ud800"}\n\n'
    assert completed(*stream(begun, [odd], call, stop="tool_use")).parts == (
        Text("a\ufffdb 🎈"),
        ToolUse("c", "add", '{"n":"\ufffd"}'),
    )


def test_nul_passes_through() -> None:
    last = completed(*stream(text(0, "a\0b"), asks(1, "c", "add", '{"n": "\\u0000"}'), stop="tool_use"))
    assert last.parts == (Text("a\0b"), ToolUse("c", "add", '{"n": "\\u0000"}'))


def test_ten_megabytes_of_arguments_are_read() -> None:
    arguments = json.dumps({"n": "x" * 10_000_000})
    pieces = (arguments[at : at + 50] for at in range(0, len(arguments), 50))
    body = b"".join(stream(asks(0, "c", "add", *pieces), stop="tool_use"))
    last = completed(*(body[at : at + 60_000] for at in range(0, len(body), 60_000)))
    assert last.parts == (ToolUse("c", "add", arguments),)


def test_the_cost_of_a_piece_is_constant() -> None:
    """Four times the pieces take about four times as long, and nowhere near sixteen times."""

    def seconds(count: int) -> float:
        piece = (
            b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"xxxxx"}}'
        )
        reply = AnthropicReply(HELLO)
        reply.feed([b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"a"}}'])
        started = time.thread_time()
        for _ in range(count):
            reply.feed([piece])
            reply.show_new(lambda _: None)
        return time.thread_time() - started

    short, long = (min(seconds(count) for _ in range(5)) for count in (5_000, 20_000))
    assert long < 10 * short


def test_a_reply_that_is_not_streamed_is_read() -> None:
    message: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "who\ud800le"},
            {"type": "hologram"},
            {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "d", "name": "now", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5},
    }
    events = events_of(refuses(200, message))
    assert events == [
        ReasoningDelta("hm"),
        TextDelta("who\ufffdle"),
        CallDelta(0, "add", '{"a":1}'),
        CallDelta(1, "now", ""),
        Completed(
            (
                Thinking("hm", "fake", "m-1", signature="s"),
                Thinking("", "fake", "m-1", sealed="d"),
                Text("who\ufffdle"),
                ToolUse("c", "add", '{"a":1}'),
                ToolUse("d", "now", "{}"),
            ),
            "tool_use",
            Usage(8, 4, 5),
        ),
    ]


def test_a_refusal_that_is_not_streamed_is_read() -> None:
    last = events_of(refuses(200, {"type": "message", "stop_reason": "refusal", "stop_details": DETAILS}))[-1]
    assert isinstance(last, Completed)
    assert (last.parts, last.stop) == ((Text("It could do harm."),), "refusal")


def test_connections_are_used_again() -> None:
    conversation = converse(says("a"), says("b"), says("c"), requests=[HELLO] * 3)
    assert [reply[0] for reply in conversation.replies] == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    assert (len(conversation.requests), conversation.connections) == (3, 1)


def test_a_server_that_ends_the_body_late_does_not_delay_the_reply() -> None:
    assert isinstance(events_of(Answer(stream(text(0, "x")), ending="hang"))[-1], Completed)


# ── The contract ───────────────────────────────────────────────────────────────────────────────────


def behaviour(scene: ProviderAction) -> Behaviour:
    match scene:
        case ProviderText(words):
            return Answer(stream(text(0, *words.replace(" ", " \0").split("\0"))))
        case ProviderCalls(calls):
            uses = [
                asks(n, use.call_id, use.name, use.arguments[:3], use.arguments[3:]) for n, use in enumerate(calls)
            ]
            return Answer(stream(*uses, stop="tool_use"))
        case ProviderRefusal():
            return refuses(500, {"type": "error", "error": {"type": "api_error", "message": "out of order"}})
        case ProviderBreak(words):
            return Answer([begins(), *text(0, words)])
        case ProviderSilence(words):
            return Answer([begins(), *text(0, words)], ending="hang")


class OverHttp:
    """The adapter, over a real server on loopback."""

    @asynccontextmanager
    async def open(self, *scenes: ProviderAction) -> AsyncGenerator[Model, None]:
        connections = Connections()
        async with FakeEndpoint(*map(behaviour, scenes)) as server:
            try:
                yield ModelClient(FORMAT, endpoint(server.url), connections)
            finally:
                await connections.close()


@pytest.mark.parametrize("check", [pytest.param(check, id=check.__name__) for check in conformance.CHECKS])
async def test_the_adapter_keeps_the_contract_of_models(check: ModelCheck) -> None:
    await check(OverHttp())
