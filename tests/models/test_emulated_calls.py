"""Requests to models that cannot call tools natively."""

import json
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

import treadle
from tests.models.described import ADD, EACH_STYLE, INTEGER, LENGTH, asked
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import ToolStyle
from treadle.domain.tools import ToolChoiceMode, ToolSpec
from treadle.models.emulated_tools.wire_format import encode_request
from treadle.ports.model import ModelRequest


def encode_body(request: ModelRequest) -> Any:
    return json.loads(encode_request(request))


def words(*messages: Message, style: ToolStyle = "schema") -> list[tuple[str, str]]:
    """Return the messages after the system message."""
    found = encode_body(asked(*messages, style=style))["messages"]
    return [(message["role"], message["content"]) for message in found[1:]]


def read_reply_schema(*tools: ToolSpec, choice: ToolChoiceMode = "auto") -> Any:
    form = encode_body(asked(tools=tools, choice=choice))["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["name"] == "reply"
    return form["json_schema"]["schema"]


# ── The system message ─────────────────────────────────────────────────────────────────────────────


def test_the_request_constrains_a_model_with_a_schema() -> None:
    assert encode_body(asked()) == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {
                "role": "system",
                "content": (
                    "Be brief.\n\n"
                    "You can use these tools:\n"
                    "- add(a: integer, b: integer): Add two numbers.\n"
                    "- length(word: string): Count the letters of a word.\n"
                    "  word: One word.\n\n"
                    'Reply with JSON only. To use a tool: {"tool": NAME, "arguments": {...}}. '
                    'To answer: {"answer": TEXT}. You may use several tools, one after the other.'
                ),
            },
            {"role": "user", "content": "hello"},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": read_reply_schema(ADD, LENGTH)},
        },
    }


def test_the_request_explains_fenced_json() -> None:
    body = encode_body(asked(style="fenced"))
    assert sorted(body) == ["messages", "model", "stream", "stream_options"]
    assert body["messages"][0]["content"].endswith(
        "To use a tool, reply with a block like this, and wait for its result:\n"
        '```json\n{"tool": NAME, "arguments": {...}}\n```\n'
        "To answer, reply in plain text. You may use several tools, one after the other."
    )


@EACH_STYLE
def test_settings_are_sent_only_if_they_are_set(style: ToolStyle) -> None:
    body = encode_body(asked(style=style, settings=ModelSettings(max_tokens=7, temperature=0.0, reasoning="low")))
    assert {name: body[name] for name in ("max_tokens", "temperature", "reasoning_effort")} == {
        "max_tokens": 7,
        "temperature": 0.0,
        "reasoning_effort": "low",
    }


class Spot(Struct):
    x: int
    near: "list[Spot]" = []


@treadle.tool
def plan(
    place: Literal["here", "there"],
    spot: Spot,
    days: int = 3,
    notes: list[str | int] | None = None,
    pair: tuple[int, str] = (1, "a"),
) -> None:
    "Plan."


def test_every_kind_of_parameter_is_described() -> None:
    [_, line, *_] = encode_body(asked(tools=(plan.spec,)))["messages"][0]["content"].split("\n\n")[1].split("\n")
    assert line == (
        '- plan(place: "here" | "there", spot: {x: integer, near: any[] = []}, days: integer = 3, '
        'notes?: (string | integer)[], pair: [integer, string] = [1,"a"]): Plan.'
    )


# ── The schema that replies are held to ────────────────────────────────────────────────────────────


def test_a_reply_is_a_call_of_an_allowed_tool_or_an_answer() -> None:
    holds = jsonschema_rs.validator_for(read_reply_schema(ADD, LENGTH)).is_valid
    assert holds({"tool": "add", "arguments": {"a": 1, "b": 2}})
    assert holds({"tool": "length", "arguments": {"word": "x"}})
    assert holds({"answer": "yes"})
    for wrong in (
        {"tool": "remove", "arguments": {"a": 1, "b": 2}},
        {"tool": "add", "arguments": {"word": "x"}},
        {"tool": "add", "arguments": {"a": 1, "b": 2, "c": 3}},
        {"tool": "add", "arguments": {"a": 1}},
        {"tool": "add", "arguments": {"a": 1, "b": 2}, "answer": "yes"},
        {"answer": 5},
        {},
        "yes",
    ):
        assert not holds(wrong), wrong


def test_the_schema_allows_only_an_answer_if_no_tool_may_be_called() -> None:
    assert read_reply_schema(ADD, choice="none") == {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    }


def test_definitions_of_several_tools_do_not_collide() -> None:
    def tool(name: str, type_: str) -> ToolSpec:
        schema = {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}, "y": {"$ref": "#/definitions/Y"}},
            "$defs": {"X": {"type": type_}},
            "definitions": {"Y": {"type": "array", "items": {"$ref": "#/$defs/X"}}},
        }
        return ToolSpec(name, "", schema)

    holds = jsonschema_rs.validator_for(read_reply_schema(tool("f", "string"), tool("g", "integer"))).is_valid
    assert holds({"tool": "f", "arguments": {"x": "a", "y": ["b"]}})
    assert holds({"tool": "g", "arguments": {"x": 1, "y": [2]}})
    assert not holds({"tool": "f", "arguments": {"x": 1}})
    assert not holds({"tool": "g", "arguments": {"y": ["a"]}})


def test_a_recursive_type_is_constrained() -> None:
    holds = jsonschema_rs.validator_for(read_reply_schema(plan.spec)).is_valid
    near: dict[str, Any] = {"x": 1, "near": [{"x": 2, "near": []}]}
    assert holds({"tool": "plan", "arguments": {"place": "here", "spot": near, "pair": [1, "b"]}})
    assert not holds({"tool": "plan", "arguments": {"place": "here", "spot": {"x": 1, "near": [3]}}})


def test_keywords_without_a_grammar_are_left_out() -> None:
    properties = {
        "pattern": {"type": "string", "pattern": "(?=a)", "minLength": 1, "maxLength": 100_000, "description": "d"},
        "tuple": {"type": "array", "prefixItems": [True], "items": False},
        "anything": True,
        "elsewhere": {"$ref": "https://example.com/schema"},
        "itself": {"$ref": "#"},
        "map": {"type": "object", "additionalProperties": {"type": "string", "title": "T"}},
        "not": {"not": {"type": "string"}},
    }
    together = {"anyOf": [{"required": ["map"]}, {"required": ["not"]}]}
    [call, _] = read_reply_schema(ToolSpec("f", "", {"properties": properties, "title": "F"} | together))["oneOf"]
    assert call["properties"]["arguments"] == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "minLength": 1},
            "tuple": {"type": "array", "prefixItems": [{}]},
            "anything": {},
            "elsewhere": {},
            "itself": {},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "not": {},
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "own",
    [
        {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}},
        {"anyOf": [{"type": "object", "properties": {"a": INTEGER}}]},
        {"type": "object", "properties": {}, "additionalProperties": False},
    ],
)
def test_additional_properties_of_a_tool_are_respected(own: dict[str, Any]) -> None:
    assert read_reply_schema(ToolSpec("f", "", own))["oneOf"][0]["properties"]["arguments"] == own


# ── The conversation ───────────────────────────────────────────────────────────────────────────────

TURNS = (
    Message("user", (Text("look"), Image("image/png", "QUJD"), Text("there"))),
    Message("assistant", (Thinking("hm", "fake", "m-1"), Text('It\'s "ok"'), ToolUse("c1", "add", '{\n"a":1}'))),
    Message("tool", (ToolResult("c1", "1"),)),
    Message("assistant", (ToolUse("c2", "length", "{}"), ToolUse("c3", "add", '{"a": 2}'))),
    Message("tool", (ToolResult("c2", "no word", is_error=True), ToolResult("c3", "2"))),
    Message("assistant", (ToolUse("c4", "length", "no JSON"),)),
    Message("tool", (ToolResult("c4", "no JSON", is_error=True),)),
    Message("assistant", (Thinking("only", "fake", "m-1"),)),
    Message("assistant", (Text("done"),)),
)


def test_every_kind_of_message_is_encoded_for_a_schema_constrained_model() -> None:
    assert words(*TURNS) == [
        ("user", "look\n[An image was here; it cannot be shown.]\nthere"),
        ("assistant", '{"answer": "It\'s \\"ok\\""}\n{"tool": "add", "arguments": {"a": 1}}'),
        ("user", "Result of add: 1\nIf nothing is missing, use this result to answer."),
        ("assistant", '{"tool": "length", "arguments": {}}\n{"tool": "add", "arguments": {"a": 2}}'),
        ("user", "Error of length: no word\nResult of add: 2\nIf nothing is missing, use these results to answer."),
        ("assistant", '{"tool": "length", "arguments": {"arguments": "no JSON"}}'),
        ("user", "Error of length: no JSON"),
        ("assistant", '{"answer": "done"}'),
    ]


def test_every_kind_of_message_is_encoded_for_a_model_that_writes_fenced_json() -> None:
    said = [content for role, content in words(*TURNS, style="fenced") if role == "assistant"]
    assert said == [
        'It\'s "ok"\n```json\n{"tool": "add", "arguments": {"a": 1}}\n```',
        '```json\n{"tool": "length", "arguments": {}}\n```\n```json\n{"tool": "add", "arguments": {"a": 2}}\n```',
        '```json\n{"tool": "length", "arguments": {"arguments": "no JSON"}}\n```',
        "done",
    ]


@EACH_STYLE
@given(st.sets(st.integers(1, len(TURNS))), st.sampled_from(["auto", "none"]))
def test_the_bytes_of_a_conversation_only_grow(style: ToolStyle, sizes: set[int], choice: ToolChoiceMode) -> None:
    growing = asked(TURNS[0], style=style)
    before = b""
    for size in sorted({1, *sizes}):
        growing.conversation.messages[:] = TURNS[:size]
        assert encode_request(growing).startswith(before)
        last = asked(*TURNS[:size], style=style, choice=choice, settings=ModelSettings(max_tokens=5))
        before = encode_request(last).partition(b'],"max_tokens":5')[0]
        assert encode_request(growing).startswith(before)


def test_a_result_names_its_tool_even_if_the_call_was_sent_earlier() -> None:
    request = asked(user("x"), Message("assistant", (ToolUse("c", "add", "{}"),)))
    encode_request(request)
    results = Message("tool", (ToolResult("c", "", is_error=True), ToolResult("lost", "5")))
    request.conversation.messages.append(results)
    assert encode_body(request)["messages"][-1]["content"].startswith(
        "Error of add: nothing\nResult of the tool: 5\n"
    )


@EACH_STYLE
def test_a_message_is_encoded_once(style: ToolStyle) -> None:
    request = asked(user("x"), style=style)
    first = encode_request(request)
    request.conversation.messages[0] = user("changed behind its back")
    assert encode_request(request) == first


@EACH_STYLE
def test_lone_surrogates_are_not_sent(style: ToolStyle) -> None:
    turns = Message("assistant", (Text("a\ud800"), ToolUse("c", "add", '{"a": "\\ud800"}')))
    [(_, said)] = words(turns, style=style)
    assert said.count("\ufffd") == 2
