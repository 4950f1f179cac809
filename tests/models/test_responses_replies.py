"""What the responses adapter makes of replies, in every dialect that servers speak."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, refuses
from tests.models.chat import HELLO, ModelEvent
from tests.patience import cpu_seconds, processor_seconds
from tests.responses_wire import (
    CREATED,
    IN_PROGRESS,
    Event,
    Item,
    OverResponses,
    added,
    arguments_delta,
    call,
    completed,
    completed_event,
    converse,
    cut,
    done,
    endpoint,
    events_of,
    incomplete_event,
    message,
    reasoning,
    refusal,
    replied,
    response,
    text_delta,
    told,
    usage,
    wire,
)
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.formats.responses import FORMAT, encode_request
from treadle.models.formats.responses_reply import ResponsesReply
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import CallDelta, Completed, Delta, ReasoningDelta, TextDelta
from treadle.testing.conformance.model import CHECKS, ModelCheck


def thinking(text: str, sealed: str | None = None, item_id: str = "rs_1", field: str | None = None) -> Thinking:
    return Thinking(text, "fake", "m-1", sealed=sealed, item_id=item_id, field=field)


def text_in(events: list[ModelEvent]) -> str:
    """How many pieces there are depends on how the network cuts the stream."""
    return "".join(one.text for one in events if isinstance(one, TextDelta))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_adapter_keeps_the_contract_of_models(check: ModelCheck) -> None:
    await check(OverResponses())


# ── As OpenAI sends them ───────────────────────────────────────────────────────────────────────────


def test_a_plain_answer_is_streamed_and_completed() -> None:
    events = events_of(Answer(wire(*replied(message("Hello"), usage=usage(12, 3, cached=8, written=2)))))
    assert text_in(events) == "Hello"
    assert events[-1] == Completed((Text("Hello"),), "end_turn", Usage(12, 3, 8, 2))


async def test_text_is_shown_as_it_arrives() -> None:
    begun, ended = wire(CREATED, added(0, message()), text_delta("Hel")), wire(text_delta("lo"), completed_event())

    async def run() -> list[str]:
        connections, shown = Connections(), list[str]()

        def show(delta: Delta) -> None:
            assert isinstance(delta, TextDelta)
            shown.append(delta.text)
            server.go_on.set()

        async with FakeEndpoint(Answer([*begun, PAUSE, *ended])) as server:
            end = await ModelClient(FORMAT, endpoint(server.url), connections).reply(HELLO, show)
            assert isinstance(end, Completed)
            await connections.close()
        return shown

    assert await run() == ["Hel", "lo"]


def test_the_parts_of_a_message_are_joined() -> None:
    assert completed(*replied(message("one", "two"))).parts == (Text("onetwo"),)


def test_the_order_of_items_is_preserved() -> None:
    items = [
        reasoning("so", sealed="g1"),
        message("first"),
        call("c1", "add", '{"a":1}'),
        reasoning("then", sealed="g2", id="rs_2"),
        message("second", id="msg_2"),
        call("c2", "add", '{"a":2}'),
    ]
    last = completed(*replied(*items))
    assert last.stop == "tool_use"
    assert last.parts == (
        thinking("so", "g1"),
        Text("first"),
        ToolUse("c1", "add", '{"a":1}'),
        thinking("then", "g2", "rs_2"),
        Text("second"),
        ToolUse("c2", "add", '{"a":2}'),
    )


def test_interleaved_parallel_calls_are_assembled() -> None:
    items = [call("c1", "add", '{"a":1}'), call("c2", "now", ""), call("c3", "add", '{"a":3}')]
    events = events_of(
        Answer(
            wire(
                CREATED,
                *(added(n, item) for n, item in enumerate(items)),
                arguments_delta('{"a"', 2),
                arguments_delta('{"a":', 0),
                arguments_delta(":3}", 2),
                arguments_delta("1}", 0),
                *(done(n, items[n]) for n in (2, 0, 1)),
                completed_event(*items),
            )
        )
    )
    shown: dict[tuple[int, str], str] = {}
    for one in events:  # how many there are depends on how the network cuts the stream
        if isinstance(one, CallDelta):
            shown[one.index, one.name] = shown.get((one.index, one.name), "") + one.arguments
    assert shown == {(0, "add"): '{"a":1}', (1, "now"): "", (2, "add"): '{"a":3}'}
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.parts == (
        ToolUse("c1", "add", '{"a":1}'),
        ToolUse("c2", "now", "{}"),
        ToolUse("c3", "add", '{"a":3}'),
    )


def test_the_text_of_a_refusal_is_kept() -> None:
    events = events_of(Answer(wire(*replied(refusal("I will not.")))))
    assert text_in(events) == "I will not."
    assert events[-1] == Completed((Text("I will not."),), "refusal", Usage(10, 5))


def test_a_refusal_is_read_as_a_whole_or_in_pieces() -> None:
    assert completed(CREATED, completed_event(refusal("No."))).stop == "refusal"
    piece = {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."}
    last = completed(CREATED, added(0, message()), piece, completed_event())
    assert (last.parts, last.stop) == ((Text("No."),), "refusal")


def test_the_paragraphs_of_a_reasoning_summary_are_separated() -> None:
    events = events_of(Answer(wire(*replied(reasoning("**One**", "**Two**"), message("x"), cuts=()))))
    shown = "".join(one.text for one in events if isinstance(one, ReasoningDelta))
    assert shown == "**One**\n\n**Two**"
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.parts == (thinking(shown, field="summary_text"), Text("x"))
    whole = completed(CREATED, completed_event(reasoning("**One**", "**Two**")))
    assert whole.parts == (thinking(shown, field="summary_text"),)


def test_reasoning_text_is_kept_with_its_field() -> None:
    last = completed(*replied(reasoning(thought="hm hm"), message("x")))
    assert last.parts == (thinking("hm hm", field="reasoning_text"), Text("x"))


@pytest.mark.parametrize("sealed", [None, "gAAA"])
def test_reasoning_without_text_is_kept_only_if_encrypted(sealed: str | None) -> None:
    kept = (thinking("", sealed),) if sealed else ()
    assert completed(*replied(reasoning(sealed=sealed), message("x"))).parts == (*kept, Text("x"))


def test_encrypted_content_comes_from_the_complete_item() -> None:
    begun = added(0, reasoning())
    begun["item"]["encrypted_content"] = "half"
    whole = reasoning(sealed="whole")
    for events in ([done(0, whole), completed_event()], [done(0, reasoning()), completed_event(whole)]):
        last = completed(CREATED, begun, *events[:-1], *told(1, message("x")), events[-1])
        assert [part for part in last.parts if isinstance(part, Thinking)] == [thinking("", "whole")]


def test_incomplete_encrypted_content_is_dropped() -> None:
    begun = added(0, reasoning("hm"))
    begun["item"]["encrypted_content"] = "half"
    cut_off = reasoning("hm", sealed="half", status="incomplete")
    for events in ([incomplete_event()], [done(0, cut_off), incomplete_event(cut_off)]):
        half = {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "hm"}
        assert completed(CREATED, begun, half, *events).parts == (thinking("hm"),)


# ── How a reply ends ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", "max_tokens"),
        ("content_filter", "refusal"),
        ("flux_capacitor", "max_tokens"),
        (None, "max_tokens"),
    ],
)
def test_an_incomplete_reply_is_cut_or_refused_by_its_reason(reason: str | None, stop: str) -> None:
    half = message("half", status="incomplete")
    last = completed(CREATED, *told(0, half), incomplete_event(half, reason=reason))
    assert (last.parts, last.stop, last.raw_stop) == ((Text("half"),), stop, None)


def test_an_incomplete_status_in_the_last_event_cuts_the_reply() -> None:
    for said in ({"status": "incomplete"}, {"incomplete_details": {"reason": "max_messages"}}):
        end = {"type": "response.completed", "response": said}
        assert completed(CREATED, *told(0, message("half")), end).stop == "max_tokens"
    whole = {"type": "response.completed", "response": {"incomplete_details": {"reason": None}}}
    assert completed(CREATED, *told(0, message("whole")), whole).stop == "end_turn"


@pytest.mark.parametrize("end", ["response.completed", "response.done"])
def test_a_last_event_without_a_response_completes_the_reply(end: str) -> None:
    last = completed(CREATED, *told(0, message("x" * 41)), {"type": end})
    assert last == Completed(
        (Text("x" * 41),), "end_turn", Usage(len(encode_request(HELLO)) // 4 + 1, 11, estimated=True)
    )


@pytest.mark.parametrize(
    "cut_off",
    [
        pytest.param([arguments_delta('{"n": ', 2)], id="in the middle"),
        pytest.param([], id="before its arguments"),
        pytest.param(
            [arguments_delta('{"n": ', 2), done(2, call("c3", "add", '{"n": ', status="incomplete"))], id="done"
        ),
        pytest.param([done(2, call("c3", "add", "", status="incomplete"))], id="done and empty"),
        pytest.param([done(2, call("c3", "add", ""))], id="done and empty, and said to be whole"),
        pytest.param([done(2, call("c3", "add", '{"n": '))], id="done, and said to be whole"),
    ],
)
def test_the_calls_of_a_reply_that_was_cut_are_left_out(cut_off: list[Event]) -> None:
    first, second, third = message("x"), call("c2", "now", ""), call("c3", "add", '{"n": 1}')
    last = completed(CREATED, *told(0, first), *told(1, second), added(2, third), *cut_off, incomplete_event())
    assert (last.parts, last.stop, last.dropped_calls) == ((Text("x"),), "max_tokens", ("now", "add"))


def test_a_complete_call_of_a_reply_that_was_cut_is_left_out_too() -> None:
    last = completed(CREATED, *told(0, call("c1", "add", '{"a":1}')), incomplete_event())
    assert (last.parts, last.stop, last.dropped_calls) == ((), "max_tokens", ("add",))


def test_usage_is_estimated_if_it_is_missing() -> None:
    for missing in (None, {}, {"input_tokens": 0, "output_tokens": 0}):
        last = completed(*replied(message("x" * 41), usage=missing))
        assert last.usage == Usage(-(-len(encode_request(HELLO)) // 4), 11, estimated=True)


def test_usage_without_details_is_read() -> None:
    assert completed(*replied(message("x"), usage={"input_tokens": 7})).usage == Usage(7)


def test_an_empty_reply_is_completed() -> None:
    assert completed(CREATED, completed_event()) == Completed((), "end_turn", Usage(10, 5))
    assert completed(*replied(message())).parts == ()
    assert completed(*replied(message(""))).parts == ()


# ── The dialects of others ─────────────────────────────────────────────────────────────────────────

ITEMS = [reasoning("so", sealed="g"), message("hi"), call("c1", "add", '{"a":1}'), call("c2", "now", "")]
PARTS: tuple[Part, ...] = (
    thinking("so", "g"),
    Text("hi"),
    ToolUse("c1", "add", '{"a":1}'),
    ToolUse("c2", "now", "{}"),
)


def remove_field(name: str, events: list[Event]) -> list[Event]:
    return [{key: value for key, value in one.items() if key != name} for one in events]


def stream_items(items: list[Item]) -> list[Event]:
    return [event for index, item in enumerate(items) for event in told(index, item)]


def stream_spaced_items(items: list[Item]) -> list[Event]:
    return [event for index, item in enumerate(items, start=1) for event in told(index * 2, item)]


def ended_late(items: list[Item]) -> list[Event]:
    """All items start and continue one after the other, and are sent complete only after the last."""
    groups = [told(index, item) for index, item in enumerate(items)]
    return [event for group in groups for event in group[:-1]] + [group[-1] for group in groups]


def rename_items(items: list[Item]) -> list[Item]:
    return [item | {"id": f"{item['id']}_other"} for item in items]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([done(n, item) for n, item in enumerate(ITEMS)], id="only whole items"),
        pytest.param([done(None, item) for item in ITEMS], id="only whole items, without numbers"),
        pytest.param([done(0, item) for item in ITEMS], id="only whole items, all of them number 0"),
        pytest.param([done(n, ITEMS[n]) for n in (3, 1, 0, 2)], id="only whole items, in any order"),
        pytest.param([completed_event(*ITEMS)], id="only at the end"),
        pytest.param([*stream_items(ITEMS[1:2]), completed_event(*ITEMS)], id="but one only at the end"),
        pytest.param([*stream_items(ITEMS[2:3]), completed_event(*ITEMS)], id="but a call only at the end"),
        pytest.param([*stream_items(ITEMS)[:-1], completed_event(*ITEMS)], id="the last is whole only at the end"),
        pytest.param(stream_items(ITEMS), id="nothing at the end"),
        pytest.param([*stream_items(ITEMS), completed_event(*ITEMS[1:2])], id="only some of them at the end"),
        pytest.param([*stream_items(ITEMS), completed_event(*rename_items(ITEMS))], id="other ids at the end"),
        pytest.param(remove_field("output_index", stream_items(ITEMS)), id="no numbers"),
        pytest.param(remove_field("output_index", ended_late(ITEMS)), id="no numbers, and all ended late"),
        pytest.param([one | {"output_index": 0} for one in stream_items(ITEMS)], id="all of them number 0"),
        pytest.param([one | {"output_index": 0} for one in ended_late(ITEMS)], id="number 0, and all ended late"),
        pytest.param(stream_spaced_items(ITEMS), id="numbers with gaps"),
        pytest.param(
            [
                event
                for one in stream_items(ITEMS)
                for event in ([one, one] if one["type"].startswith("response.output_item") else [one])
            ],
            id="beginnings and ends are told twice",
        ),
        pytest.param(
            [
                one
                for one in stream_items(ITEMS)
                if one["type"] != "response.output_item.added" or one["output_index"] < 2
            ],
            id="calls whose beginning is missing",
        ),
        pytest.param(
            [
                one | {"output_index": 0}
                for one in stream_items(ITEMS)
                if one["type"] != "response.output_item.added"
            ],
            id="number 0, and no beginnings",
        ),
        pytest.param(
            [
                one | {"output_index": 0}
                for one in ended_late(ITEMS[:3])
                if one["type"] != "response.output_item.added"
            ]
            + told(0, ITEMS[3]),
            id="number 0, no beginnings, and all ended late",
        ),
        pytest.param(
            [one if "item" in one else remove_field("output_index", [one])[0] for one in stream_items(ITEMS)],
            id="numbers of items, and none of pieces",
        ),
        pytest.param(
            [*stream_spaced_items(ITEMS[:3]), completed_event(ITEMS[3])],
            id="numbers with gaps, and a call only at the end",
        ),
    ],
)
def test_every_dialect_of_items_is_assembled(events: list[Event]) -> None:
    end = [] if events[-1]["type"] == "response.completed" else [{"type": "response.completed"}]
    last = completed(CREATED, *events, *end)
    assert (last.parts, last.stop) == (PARTS, "tool_use")


def test_two_messages_with_one_index_stay_separate() -> None:
    one, two = message("x"), message("x", id="msg_2")
    late = [event | {"output_index": 0} for event in ended_late([one, two])]
    for events in (
        late,
        [done(0, one), done(0, two)],
        [*told(0, one), *told(0, two)],
        [*told(0, one), *told(0, two)[1:]],
    ):
        assert completed(CREATED, *events, {"type": "response.completed"}).parts == (Text("x"), Text("x"))


def test_pieces_missing_in_the_complete_item_are_kept() -> None:
    item = call("c1", "add", '{"a":1}', id="fc_1")
    whole = {"type": "function_call", "arguments": '{"a":1}'}
    sealed = {"type": "reasoning", "encrypted_content": "g"}
    begun = [added(0, reasoning()), done(0, sealed), added(1, item), done(1, whole)]
    assert completed(CREATED, *begun, completed_event()).parts == (
        thinking("", "g"),
        ToolUse("c1", "add", '{"a":1}'),
    )


def test_items_can_arrive_out_of_order() -> None:
    one, two = message("one"), message("two", id="msg_2")
    last = completed(CREATED, done(1, two), done(0, one), completed_event(one, two))
    assert last.parts == (Text("one"), Text("two"))


def test_the_final_list_decides_the_order_of_items() -> None:
    late = [told(0, ITEMS[1]), told(1, ITEMS[0])]
    assert completed(CREATED, *late[0], *late[1], completed_event(*ITEMS[:2])).parts == PARTS[:2]


def test_pieces_that_arrive_before_their_item_are_kept() -> None:
    item = call("c1", "add", '{"a":1}')
    last = completed(
        arguments_delta('{"a"'), added(0, item), arguments_delta(":1}"), done(0, item), completed_event()
    )
    assert last.parts == (ToolUse("c1", "add", '{"a":1}'),)


def test_text_without_an_end_event_is_kept() -> None:
    assert completed(text_delta("a"), text_delta("b"), completed_event()).parts == (Text("ab"),)


def test_missing_pieces_come_from_the_complete_item() -> None:
    reply, shown = ResponsesReply(HELLO), list[Delta]()
    for event in (text_delta("one "), done(0, message("one two")), completed_event(message("one two"))):
        reply.feed([json.dumps(event).encode()])
        reply.show_new(shown.append)
    assert shown == [TextDelta("one "), TextDelta("two")]
    assert reply.finish(0).parts == (Text("one two"),)


def test_pieces_override_a_different_complete_item() -> None:
    item = call("c1", "add", '{"a": 1}')
    for whole in ('{"a":1}', "{}", ""):
        ended = done(0, item | {"arguments": whole})
        last = completed(CREATED, added(0, item), arguments_delta('{"a": 1}'), ended, completed_event())
        assert last.parts == (ToolUse("c1", "add", '{"a": 1}'),)


def test_arguments_sent_as_an_object_are_read() -> None:
    item = call("c", "add") | {"arguments": {"n": 1}}
    assert completed(CREATED, done(0, item), completed_event()).parts == (ToolUse("c", "add", '{"n":1}'),)


def test_calls_without_ids_and_with_one_id_pass_through() -> None:
    items = [call("", "add"), call("same", "add"), call("same", "now"), call("same", "add", '{"a":2}')]
    for item in items:
        item["id"] = None
    expected = tuple(ToolUse(item["call_id"], item["name"], item["arguments"]) for item in items)
    whole = [event for n, item in enumerate(items) for event in (added(n, item), done(n, item))]
    for events in ([completed_event(*items)], [*whole, completed_event()], [*whole, completed_event(*items)]):
        assert completed(CREATED, *events).parts == expected


def test_the_item_id_replaces_a_missing_call_id() -> None:
    item = call("", "add", id="fc_7")
    assert completed(*replied(item)).parts == (ToolUse("fc_7", "add", "{}"),)


def test_a_call_inside_text_stays_text() -> None:
    text = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    last = completed(*replied(message(text)))
    assert (last.parts, last.stop) == ((Text(text),), "end_turn")


def test_a_reply_that_is_not_streamed_is_read() -> None:
    body = response("completed", ITEMS, usage(7, 3, 2))
    assert events_of(refuses(200, body))[-1] == Completed(PARTS, "tool_use", Usage(7, 3, 2))
    half = response("incomplete", ITEMS[1:2], usage(7, 3), incomplete_details={"reason": "max_output_tokens"})
    assert events_of(refuses(200, half))[-1] == Completed((Text("hi"),), "max_tokens", Usage(7, 3))


def test_done_and_the_last_blank_line_are_optional() -> None:
    body = b"".join(wire(*replied(message("x"))))
    for pieces in ([body, DONE], [body.rstrip()], [body.replace(b"event: ", b"x-event: ")]):
        last = events_of(Answer(pieces))[-1]
        assert isinstance(last, Completed)
        assert last.parts == (Text("x"),)


# ── Unknown data ──────────────────────────────────────────────────────────────────────────────────


def test_unknown_events_and_items_are_ignored() -> None:
    odd = {"type": "dream", "id": 7, "name": {"a": 1}, "arguments": [1], "content": "x", "summary": 3}
    items = [message("hi"), call("c1", "add")]
    last = completed(
        CREATED,
        {"type": "response.dreaming.delta", "delta": {"a": 1}, "item": 7, "response": "?", "output_index": "x"},
        {"type": ["no", "name"]},
        {"type": "keepalive"},
        added(0, odd),
        {"type": "response.output_item.added", "output_index": 9, "item": None},
        done(0, odd),
        *told(1, items[0]),
        {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {}},
        {"type": "response.output_item.added", "output_index": 9, "item": {"type": {}}},
        *told(2, items[1]),
        completed_event(odd, *items, {"type": ["dream"]}),
    )
    assert last.parts == (Text("hi"), ToolUse("c1", "add", "{}"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("output_index", "delta", "item", "response", "code", "message", "object", "sequence_number", "usage")


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), max_size=3), st.text(min_size=1))
def test_unknown_events_of_any_shape_are_ignored(unknown: list[Event], name: str) -> None:
    events: list[Event] = [{"object": "response", **one, "type": f"x.{name}"} for one in unknown]
    reply = ResponsesReply(HELLO)
    payloads = [json.dumps(one).encode() for one in (*events, *told(0, message("hi")), *events, completed_event())]
    assert reply.feed(payloads) is None
    assert reply.finish(0).parts == (Text("hi"),)


# ── Bytes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_reply_is_the_same_for_any_split_of_the_bytes(size: int, line_end: bytes) -> None:
    events = wire(*replied(message("grüße 🎈日本"), call("c", "add", '{"a":"ü"}')))
    body = b": hello\n\n" + b": ping\n\n".join(events)
    body = body.replace(b"\\u00fc", "ü".encode()).replace(b"\n", line_end)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    last = events_of(Answer(pieces))[-1]
    assert isinstance(last, Completed)
    assert last.parts == (Text("grüße 🎈日本"), ToolUse("c", "add", '{"a":"ü"}'))


def test_lone_surrogates_become_the_replacement_character() -> None:
    last = completed(*replied(message("a\ud800b 🎈"), call("c", "add", '{"n": "\\ud800"}'), reasoning("\udfff")))
    assert last.parts == (
        Text("a\ufffdb 🎈"),
        ToolUse("c", "add", '{"n":"\ufffd"}'),
        thinking("\ufffd", field="summary_text"),
    )


def test_nul_passes_through() -> None:
    last = completed(*replied(message("x\0y"), call("c", "add", '{"n": "\\u0000"}')))
    assert last.parts == (Text("x\0y"), ToolUse("c", "add", '{"n": "\\u0000"}'))


def test_ten_megabytes_of_arguments_are_read() -> None:
    arguments = json.dumps({"n": "x" * 10_000_000})
    item = call("c", "add", arguments)
    deltas = [arguments_delta(piece) for piece in cut(arguments, range(0, len(arguments), 10_000))]
    body = b"".join(wire(CREATED, added(0, item), *deltas, done(0, item), completed_event(item)))
    last = events_of(Answer([body[at : at + 60_000] for at in range(0, len(body), 60_000)]))[-1]
    assert isinstance(last, Completed)
    assert last.parts == (ToolUse("c", "add", arguments),)


def test_the_cost_of_a_token_does_not_grow() -> None:
    """A hundredth of what a model takes to write them would be far too much."""

    def seconds(count: int) -> float:
        payloads = [json.dumps(one).encode() for one in (added(0, message()), *[text_delta("tok ")] * count)]

        def receive() -> None:
            reply, shown = ResponsesReply(HELLO), list[Delta]()
            for payload in payloads:
                reply.feed([payload])
                reply.show_new(shown.append)
            assert len(shown) == count

        return cpu_seconds(receive)

    few = seconds(2_000)
    assert few < 30 * processor_seconds(), "about 75 microseconds for each on a processor of 2020"
    assert seconds(8_000) < 10 * few


def test_connections_are_used_again() -> None:
    answers = [Answer(wire(*replied(message(text)))) for text in ("a", "b", "c")]
    exchange = converse(*answers, requests=[HELLO] * 3)
    assert [reply[0] for reply in exchange.replies] == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    assert (len(exchange.requests), exchange.connections) == (3, 1)


def test_a_server_that_ends_the_body_late_does_not_delay_the_reply() -> None:
    assert isinstance(events_of(Answer(wire(*replied(message("x"))), ending="hang"))[-1], Completed)


@st.composite
def sent_items(draw: st.DrawFn) -> tuple[list[Item], list[Event]]:
    """Items, and their events: each item begins in its order, and goes on in any."""
    texts = st.text(min_size=1, max_size=12)
    made = [
        texts.map(message),
        texts.map(lambda text: reasoning(text, sealed="g")),
        st.dictionaries(texts, texts, max_size=2).map(lambda given: call("", "add", json.dumps(given))),
    ]
    items = draw(st.lists(st.one_of(made), min_size=1, max_size=4))
    for number, item in enumerate(items):
        item["id"] = f"id_{number}"
        if "call_id" in item:
            item["call_id"] = f"call_{number}"
    cuts = draw(st.lists(st.integers(1, 20), max_size=4))
    queues = [told(index, item, cuts) for index, item in enumerate(items)]
    sent = [queue.pop(0) for queue in queues]
    while waiting := [queue for queue in queues if queue]:
        sent.append(draw(st.sampled_from(waiting)).pop(0))
    return items, sent


def part_of(item: Item) -> Part:
    match item["type"]:
        case "message":
            return Text(item["content"][0]["text"])
        case "reasoning":
            return thinking(item["summary"][0]["text"], item["encrypted_content"], item["id"])
        case _:
            return ToolUse(item["call_id"], item["name"], item["arguments"])


@given(sent_items(), st.integers(1, 5), st.booleans())
def test_items_are_assembled_from_any_pieces(
    sent: tuple[list[Item], list[Event]], at_once: int, repeated: bool
) -> None:
    items, events = sent
    reply, shown = ResponsesReply(HELLO), list[Delta]()
    end = completed_event(*(items if repeated else ()))
    payloads = [json.dumps(one).encode() for one in (CREATED, IN_PROGRESS, *events, end)]
    for start in range(0, len(payloads), at_once):
        assert reply.feed(payloads[start : start + at_once]) is None
        reply.show_new(shown.append)
    parts = tuple(map(part_of, items))
    assert reply.finish(0).parts == parts
    calls = [part for part in parts if isinstance(part, ToolUse)]
    for place, use in enumerate(calls):
        pieces = [one for one in shown if isinstance(one, CallDelta) and one.index == place]
        assert {one.name for one in pieces} == {use.name}
        assert "".join(one.arguments for one in pieces) == use.arguments
    heard = sum(len(one.text) for one in shown if isinstance(one, TextDelta))
    assert heard == sum(len(part.text) for part in parts if isinstance(part, Text))
