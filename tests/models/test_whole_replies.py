"""Servers that do not stream although they are asked to: the whole reply comes as one JSON document."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests import anthropic_wire, responses_wire
from tests.fake_endpoint import DONE, Answer, delta
from tests.models import chat
from tests.models.chat import ModelEvent
from tests.models.described import ADDED, CALL, EACH_STYLE, asked
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.models import ToolStyle
from treadle.domain.runs import Usage
from treadle.models.http import sse
from treadle.ports.model import CallDelta, Completed, Failed, ReasoningDelta, TextDelta

JSON = {"Content-Type": "application/json; charset=utf-8"}
EventsOf = Callable[..., list[ModelEvent]]

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me\n\nsee.",
                "reasoning_content": "hm",
                "refusal": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
                    {"id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}},
}
ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Let me\n\nsee."},
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "now", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5},
}
RESPONSES = responses_wire.response(
    "completed",
    (
        responses_wire.reasoning("hm"),
        responses_wire.message("Let me\n\nsee."),
        responses_wire.call("c1", "add", '{"a": 1}'),
        responses_wire.call("c2", "now", "{}"),
    ),
    responses_wire.usage(10, 5, cached=4),
)


class WholeReply:
    """A format, a reply in it that was not streamed, and what comes of that."""

    def __init__(self, events_of: EventsOf, document: Any, thought: Thinking, arguments: str) -> None:
        self.events_of = events_of
        self.document = document
        self.parts: tuple[Part, ...] = (
            thought,
            Text("Let me\n\nsee."),
            ToolUse("c1", "add", arguments),
            ToolUse("c2", "now", "{}"),
        )

    def of(self, *pieces: bytes, **answer: Any) -> list[ModelEvent]:
        return self.events_of(Answer(pieces, headers=JSON, **answer))


FORMATS = {
    "chat_completions": WholeReply(
        chat.events_of, CHAT, Thinking("hm", "fake", "m-1", field="reasoning_content"), '{"a": 1}'
    ),
    "anthropic_messages": WholeReply(
        anthropic_wire.events_of, ANTHROPIC, Thinking("hm", "fake", "m-1", signature="s"), '{"a":1}'
    ),
    "responses": WholeReply(
        responses_wire.events_of,
        RESPONSES,
        Thinking("hm", "fake", "m-1", item_id="rs_1", field="summary_text"),
        '{"a": 1}',
    ),
}


@pytest.fixture(params=FORMATS)
def whole(request: pytest.FixtureRequest) -> WholeReply:
    return FORMATS[request.param]


def cut(document: bytes, size: int) -> list[bytes]:
    return [document[at : at + size] for at in range(0, len(document), size)]


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_may_span_many_lines(whole: WholeReply, indent: int | None, size: int) -> None:
    events = whole.of(*cut(json.dumps(whole.document, indent=indent).encode(), size))
    shown, last = events[:-1], events[-1]
    assert last == Completed(whole.parts, "tool_use", Usage(10, 5, 4))
    assert shown[:2] == [ReasoningDelta("hm"), TextDelta("Let me\n\nsee.")]
    assert [(one.index, one.name) for one in shown[2:] if isinstance(one, CallDelta)] == [(0, "add"), (1, "now")]
    assert len(shown) == 4


def test_blank_lines_before_a_document_are_skipped(whole: WholeReply) -> None:
    [*_, last] = whole.of(b"\n", b" \r\n\n", b"\n" + json.dumps(whole.document, indent=2).encode() + b"\n")
    assert isinstance(last, Completed)
    assert last.parts == whole.parts


@pytest.mark.parametrize("indent", [None, 2])
def test_an_error_is_a_failure_in_the_words_of_the_provider(whole: WholeReply, indent: int | None) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "we are overloaded"}}
    [end] = whole.of(json.dumps(error, indent=indent).encode())
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable) == ("overloaded", True)
    assert "we are overloaded" in end.message


@pytest.mark.parametrize("document", [b"\n", b"{}", b'{\n  "cho', b"[\n]", b'{"choices": []}\n{"choices": []}'])
def test_a_body_that_is_not_a_reply_is_malformed(whole: WholeReply, document: bytes) -> None:
    [end] = whole.of(document, framing="close")
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable) == ("malformed", True)
    assert "it came as application/json and not as text/event-stream" in end.message


def test_a_truncated_document_is_malformed(whole: WholeReply) -> None:
    [end] = whole.of(json.dumps(whole.document, indent=2).encode(), framing="length", ending="cut")
    assert isinstance(end, Failed)
    assert end.kind == "malformed"


def test_an_endless_document_is_refused(whole: WholeReply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_REPLY_EVENT_BYTES", 1024 * 1024)
    [end] = whole.of(b'{\n"a": "', *[b"x" * 100_000] * 12)
    assert isinstance(end, Failed)
    assert (end.kind, "larger than 1 MB" in end.message) == ("malformed", True)


def test_events_under_the_wrong_name_are_read() -> None:
    pieces = [b"\n: hello\n\n", delta(content="Hel"), delta(content="lo", finish="stop"), DONE]
    events = chat.events_of(Answer(pieces, headers=JSON))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]
    assert isinstance(events[-1], Completed)


# ── Dialects of one format ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ids", [(None, None), ("same", "same"), ("", "")])
def test_calls_of_a_complete_message_are_identified_by_position(ids: tuple[str | None, str | None]) -> None:
    calls = [
        {"id": ids[0], "function": {"name": "now", "arguments": ""}},
        {"id": ids[1], "function": {"name": "add", "arguments": '{"a": 1}'}},
    ]
    choice = {"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}
    [*_, last] = FORMATS["chat_completions"].of(json.dumps({"choices": [choice]}, indent=1).encode())
    assert isinstance(last, Completed)
    assert last.parts == (ToolUse(ids[0] or "", "now", "{}"), ToolUse(ids[1] or "", "add", '{"a": 1}'))


@EACH_STYLE
def test_emulated_calls_are_read_from_a_document(style: ToolStyle) -> None:
    text = CALL if style == "schema" else f"```json\n{CALL}\n```"
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    answer = Answer([json.dumps({"choices": [choice]}, indent=2).encode()], headers=JSON)
    [[*_, last]] = chat.converse(answer, requests=[asked(style=style)]).replies
    assert isinstance(last, Completed)
    assert (last.parts, last.stop) == ((ADDED,), "tool_use")


TRUNCATED: dict[str, Any] = {
    "chat_completions": {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]},
    "anthropic_messages": {"content": [{"type": "text", "text": "x"}], "stop_reason": "max_tokens"},
    "responses": {
        "output": [responses_wire.message("x")],
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_document_cut_by_the_token_limit_is_a_cut_reply(name: str) -> None:
    whole = FORMATS[name]
    [*_, last] = whole.of(json.dumps(whole.document | TRUNCATED[name], indent=2).encode())
    assert isinstance(last, Completed)
    assert (last.parts, last.stop) == ((Text("x"),), "max_tokens")
