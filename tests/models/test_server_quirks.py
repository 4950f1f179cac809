"""Replies and errors of servers that deviate from the formats, read directly."""

import json
from typing import Any

import pytest

from tests.models.chat import HELLO
from treadle.domain.messages import Text, ToolUse
from treadle.domain.written_calls import find_written_call
from treadle.models.formats.chat_reply import ChatReply
from treadle.models.http.error_rules import classify_error
from treadle.models.http.reported_error import find_reported_error

WHOLE = '{"a": 1}'


def delta(fields: Any, finish: str | None = None) -> Any:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def calls(*fragments: Any) -> list[Any]:
    return [*(delta({"tool_calls": fragment}) for fragment in fragments), delta({}, "tool_calls")]


def read(chunks: list[Any]) -> ChatReply:
    reply = ChatReply(HELLO)
    assert reply.feed([json.dumps(chunk).encode() for chunk in chunks]) is None
    return reply


ADD = {"name": "add", "arguments": WHOLE}


@pytest.mark.parametrize(
    "fragments",
    [
        ([{"index": "0", "id": "c1", "function": ADD}],),
        ([{"index": 0.0, "id": 17, "function": ADD}],),
        ({"index": 0, "id": "c1", "function": ADD},),
        ([None, {"index": 0, "id": "c1", "function": ADD}],),
        ([{"id": "c1", "function": ADD}], [{"id": "c1", "function": ADD}]),
        ([{"index": 0, "id": "c1", "function": {"name": "add", "parameters": {"a": 1}}}],),
        ([{"index": 0, "id": "c1", "function": {"name": "add", "parameters": WHOLE}}],),
        (
            [{"index": 0, "function": {"name": "add", "arguments": "{"}}],
            [{"index": 0, "function": {"arguments": WHOLE}}],
        ),
    ],
)
def test_a_call_with_odd_types_or_repeated_arguments_is_read(fragments: tuple[Any, ...]) -> None:
    parts = read(calls(*fragments)).finish(1).parts
    assert [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolUse)] == [
        ("add", {"a": 1})
    ]


def test_a_message_at_the_end_of_a_stream_does_not_repeat_it() -> None:
    message = {"content": "hello", "tool_calls": [{"id": "c1", "function": ADD}]}
    chunks = [delta({"content": "hello"}), delta({"tool_calls": [{"index": 0, "id": "c1", "function": ADD}]})]
    chunks.append({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    parts = read(chunks).finish(1).parts
    assert [part.text for part in parts if isinstance(part, Text)] == ["hello"]
    assert len([part for part in parts if isinstance(part, ToolUse)]) == 1


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"detail": "Rate limit exceeded"}, "rate_limited"),
        ({"code": 429, "msg": "rate limit"}, "rate_limited"),
        ({"code": 50501, "msg": "系统繁忙"}, "overloaded"),
        ({"error_code": 110, "error_msg": "Access token invalid or no longer valid"}, "auth"),
        ({"success": False, "message": "insufficient balance"}, "billing"),
        ({"code": 200, "message": "success"}, None),
        ({"code": "ok", "message": "success"}, None),
        ({"type": "response.warning", "code": 7, "message": "rate limit is near"}, None),
        ({"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 1}}}, None),
        ({"code": 500, "message": "x", "choices": [{"delta": {"content": ""}}]}, None),
    ],
)
def test_an_error_inside_a_stream_is_found(event: Any, kind: str | None) -> None:
    error = find_reported_error(json.dumps(event).encode())
    assert (None if error is None else classify_error(None, json.dumps({"error": error})).rule.kind) == kind


@pytest.mark.parametrize(
    "message",
    [
        "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_x",
        "The number of toolResult blocks at messages.2.content exceeds the number of blocks of previous turn.",
        "Please ensure that function call turn comes immediately after a user turn.",
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "Invalid assistant message: content or tool_calls must be set",
        "the message at position 2 with role 'assistant' must not be empty",
    ],
)
def test_a_complaint_about_the_structure_is_answered_with_the_plainest_form(message: str) -> None:
    assert classify_error(400, json.dumps({"message": message})).rule.repair


@pytest.mark.parametrize(
    "message",
    [
        "tool_call_id: string too long, at most 64 characters",
        "Invalid 'tools[0].function.name': must match ^[a-zA-Z0-9_-]+$",
        "This model does not support tools",
        "temperature must be below 1",
    ],
)
def test_other_complaints_are_not_about_the_structure(message: str) -> None:
    assert not classify_error(400, json.dumps({"message": message})).rule.repair


@pytest.mark.parametrize(
    "text",
    [
        ">>>look\n{}",
        "<tool_use>\n<name>look</name>\n<arguments>{}</arguments>\n</tool_use>",
        '{"tool": "look", "tool_input": {}}',
        '{"function_call": {"name": "look", "arguments": "{}"}}',
        "Yes. <|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "<\uff5ctool\u2581call\u2581begin\uff5c>look<\uff5ctool\u2581sep\uff5c>{}",
    ],
)
def test_a_written_call_is_found(text: str) -> None:
    assert find_written_call(text, {"look"}) is not None


@pytest.mark.parametrize(
    "text",
    [
        "Qwen uses <tool_call> and </tool_call>, while Mistral uses [TOOL_CALLS].",
        "Kimi uses <|tool_call_begin|> and <|tool_call_end|>.",
        "DeepSeek puts <\uff5ctool\u2581calls\u2581begin\uff5c> in front of its calls.",
        'So:\n\n    <tool_call>\n    {"name": "look", "arguments": {}}\n    </tool_call>\n\nThat is all.',
        '```python\nprint(look(place="x"))\nprint("done")\n```',
    ],
)
def test_a_mentioned_token_is_not_a_call(text: str) -> None:
    assert find_written_call(text, {"look"}) is None
