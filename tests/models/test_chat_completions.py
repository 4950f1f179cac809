"""What the chat_completions adapter makes of replies, in every dialect that servers speak."""

import json
from typing import Any

import pytest

from tests.fake_endpoint import (
    DONE,
    Answer,
    delta,
    event,
    fragment,
    refuses,
    says,
    usage,
)
from tests.models.chat import HELLO, completed, converse, events_of
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Text, Thinking, ToolUse, user
from treadle.domain.runs import Usage
from treadle.models.formats.chat_completions import encode_request
from treadle.ports.model import (
    CallDelta,
    Completed,
    Conversation,
    ModelRequest,
    Preamble,
    ReasoningDelta,
    TextDelta,
)


def test_a_plain_answer_is_streamed_and_completed() -> None:
    events = events_of(
        Answer(
            [
                delta(role="assistant", content=""),
                delta(content="Hel"),
                delta(content="lo"),
                delta(finish="stop"),
                usage(12, 3, cached=8),
                DONE,
            ]
        )
    )
    assert events == [
        TextDelta("Hel"),
        TextDelta("lo"),
        Completed((Text("Hello"),), "end_turn", Usage(12, 3, 8)),
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_reply_is_the_same_for_any_split_of_the_bytes(size: int, line_end: bytes) -> None:
    body = b": hello\n\n" + delta(content="grüße 🎈") + delta(content="日本", finish="stop") + usage() + DONE
    body = body.replace(b"\\u00fc", "ü".encode()).replace(b"\n", line_end)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert completed(*pieces).parts == (Text("grüße 🎈日本"),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_and_kept_with_its_field(field: str) -> None:
    events = events_of(Answer([delta(**{field: "hm"}), delta(content="yes", finish="stop"), usage(), DONE]))
    assert events[:2] == [ReasoningDelta("hm"), TextDelta("yes")]
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.parts == (Thinking("hm", "fake", "m-1", field=field), Text("yes"))


def test_calls_are_merged_by_index() -> None:
    events = events_of(
        Answer(
            [
                delta(content="Let me see."),
                delta(tool_calls=[fragment(0, "c1", "add")]),
                delta(tool_calls=[fragment(0, arguments='{"a"')]),
                delta(tool_calls=[fragment(1, "c2", "now"), fragment(0, arguments=":1}")]),
                delta(finish="tool_calls"),
                usage(),
                DONE,
            ]
        )
    )
    shown: dict[tuple[int, str], str] = {}
    for part in events:  # how many there are depends on how the network cuts the stream
        if isinstance(part, CallDelta):
            shown[part.index, part.name] = shown.get((part.index, part.name), "") + part.arguments
    assert shown == {(0, "add"): '{"a":1}', (1, "now"): ""}
    last = events[-1]
    assert isinstance(last, Completed)
    assert last.stop == "tool_use"
    assert last.parts == (Text("Let me see."), ToolUse("c1", "add", '{"a":1}'), ToolUse("c2", "now", "{}"))


CALLS = [("a", '{"n": 1}'), ("a", '{"n": 2, "s": "}{"}'), ("b", "{}")]


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param(
            [fragment(0, f"c{i}", name, args) for i, (name, args) in enumerate(CALLS)], id="all at index 0"
        ),
        pytest.param([fragment(None, f"c{i}", name, args) for i, (name, args) in enumerate(CALLS)], id="no index"),
        pytest.param(
            [fragment(i, f"c{i}", name, piece) for i, (name, args) in enumerate(CALLS) for piece in args],
            id="name and id in every fragment",
        ),
        pytest.param(
            [
                fragment(None, f"c{i}" if not at else None, name if not at else None, piece)
                for i, (name, args) in enumerate(CALLS)
                for at, piece in enumerate(args)
            ],
            id="no index, in fragments",
        ),
        pytest.param(
            [
                fragment(i, f"c{i}" if not at else f"x{at}", name, piece)
                for i, (name, args) in enumerate(CALLS)
                for at, piece in enumerate(args)
            ],
            id="a new id in every fragment",
        ),
        pytest.param(
            [
                *(fragment(i, f"c{i}", name, args) for i, (name, args) in enumerate(CALLS)),
                *(fragment(i, f"c{i}", name) for i, (name, _) in enumerate(CALLS)),
            ],
            id="an empty fragment at the end",
        ),
    ],
)
def test_every_dialect_of_call_fragments_is_assembled(fragments: list[Any]) -> None:
    last = completed(*(delta(tool_calls=[one]) for one in fragments), delta(finish="tool_calls"), usage(), DONE)
    assert last.parts == tuple(ToolUse(f"c{i}", name, args) for i, (name, args) in enumerate(CALLS))


def test_calls_without_ids_and_with_one_id_pass_through() -> None:
    last = completed(
        delta(
            tool_calls=[fragment(0, "", "a", "{}"), fragment(1, "same", "a", "{}"), fragment(2, "same", "b", "{}")]
        ),
        delta(finish="tool_calls"),
        DONE,
    )
    assert last.parts == (ToolUse("", "a", "{}"), ToolUse("same", "a", "{}"), ToolUse("same", "b", "{}"))


def test_calls_with_neither_ids_nor_indexes_are_separated() -> None:
    """One begins where the arguments before it are whole; a name that is repeated begins none."""
    fragments = [fragment(name="a", arguments='{"n":'), fragment(name="a", arguments=" 1}")]
    fragments += [fragment(name="a", arguments='{"n": 2}')]
    last = completed(*(delta(tool_calls=[one]) for one in fragments), delta(finish="tool_calls"), DONE)
    assert last.parts == (ToolUse("", "a", '{"n": 1}'), ToolUse("", "a", '{"n": 2}'))


def test_arguments_sent_as_an_object_are_read() -> None:
    one = {"index": 0, "id": "c", "function": {"name": "a", "arguments": {"n": 1}}}
    assert completed(delta(tool_calls=[one], finish="tool_calls"), DONE).parts == (ToolUse("c", "a", '{"n":1}'),)


@pytest.mark.parametrize(
    ("finish", "stop", "raw"),
    [
        ("stop", "end_turn", None),
        ("length", "max_tokens", None),
        ("content_filter", "refusal", None),
        ("tool_calls", "other", "tool_calls"),
        ("function_call", "other", "function_call"),
        ("flux_capacitor", "other", "flux_capacitor"),
    ],
)
def test_each_finish_reason_is_translated(finish: str, stop: str, raw: str | None) -> None:
    last = completed(delta(content="x", finish=finish), DONE)
    assert (last.stop, last.raw_stop) == (stop, raw)


def test_calls_with_the_finish_reason_stop_still_run() -> None:
    assert completed(delta(tool_calls=[fragment(0, "c", "a", "{}")], finish="stop"), DONE).stop == "tool_use"


def test_the_text_of_a_refusal_is_kept() -> None:
    last = completed(delta(refusal="I will "), delta(refusal="not."), delta(finish="stop"), DONE)
    assert (last.parts, last.stop) == ((Text("I will not."),), "refusal")


def test_the_calls_of_a_reply_that_was_cut_are_left_out() -> None:
    whole, cut = fragment(0, "c1", "a", "{}"), fragment(1, "c2", "a", '{"n": ')
    last = completed(delta(content="x", tool_calls=[whole, cut]), delta(finish="length"), DONE)
    assert (last.parts, last.stop, last.dropped_calls) == ((Text("x"),), "max_tokens", ("a", "a"))
    nothing_yet = fragment(0, "c1", "a", "")
    assert completed(delta(tool_calls=[nothing_yet]), delta(finish="length"), DONE).parts == ()


def test_usage_is_estimated_if_it_is_missing() -> None:
    last = completed(delta(content="x" * 41, finish="stop"), DONE)
    assert last.usage == Usage(-(-len(encode_request(HELLO)) // 4), 11, estimated=True)


def test_lone_surrogates_become_the_replacement_character() -> None:
    chunk = b'{"choices":[{"delta":{"content":"a\\ud800b \\ud83c\\udf88"},"finish_reason":"stop"}]}'
    assert completed(event(chunk), DONE).parts == (Text("a\ufffdb 🎈"),)
    arguments = '{"n": "\\ud800"}'
    last = completed(delta(tool_calls=[fragment(0, "c", "a", arguments)], finish="tool_calls"), DONE)
    assert last.parts == (ToolUse("c", "a", '{"n":"\ufffd"}'),)


def test_ten_megabytes_of_arguments_are_read() -> None:
    arguments = json.dumps({"n": "x" * 10_000_000})
    body = delta(tool_calls=[fragment(0, "c", "a", arguments)], finish="tool_calls") + DONE
    last = completed(*(body[at : at + 50_000] for at in range(0, len(body), 50_000)))
    assert last.parts == (ToolUse("c", "a", arguments),)


def test_a_request_of_several_megabytes_is_sent() -> None:
    large = ModelRequest("m", Preamble("", ()), Conversation([user("x" * 3_000_000)]), ModelSettings())
    conversation = converse(says("long"), requests=[large])
    assert isinstance(conversation.replies[0][-1], Completed)
    assert conversation.requests[0].body == encode_request(large)


def test_the_last_blank_line_and_done_may_be_missing() -> None:
    assert completed(delta(content="x", finish="stop").rstrip()).parts == (Text("x"),)


def test_a_reply_that_is_not_streamed_is_read() -> None:
    message = {"role": "assistant", "content": "whole", "tool_calls": None}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    last = events_of(refuses(200, body))[-1]
    assert last == Completed((Text("whole"),), "end_turn", Usage(1))


def test_unknown_fields_empty_choices_and_nulls_are_ignored() -> None:
    last = completed(
        event({"choices": [], "prompt_filter_results": []}),
        event({"choices": None, "usage": None, "x": 1}),
        event({"choices": [{"delta": None}]}),
        delta(content=None, tool_calls=None, audio={"id": 1}),
        delta(content="x\x00y", finish="stop"),
        DONE,
    )
    assert last.parts == (Text("x\x00y"),)


def test_connections_are_used_again() -> None:
    conversation = converse(says("a"), says("b"), says("c"), requests=[HELLO] * 3)
    assert [reply[0] for reply in conversation.replies] == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    assert (len(conversation.requests), conversation.connections) == (3, 1)


def test_a_server_that_ends_the_body_late_does_not_delay_the_reply() -> None:
    assert isinstance(events_of(Answer([delta(content="x", finish="stop"), DONE], ending="hang"))[-1], Completed)
