"""What the responses adapter sends."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fake_endpoint import Answer
from tests.models.chat import ADD, HELLO, KEY
from tests.responses_wire import converse, message, replied, wire
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import Profile
from treadle.models.formats.responses import encode_request
from treadle.ports.model import Completed, Conversation, ModelRequest, Preamble

EMPTY = Preamble("", ())
SEALED = Thinking("hm", "fake", "m-1", sealed="gAAA", item_id="rs_1")
SENT_BACK = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAA",
}


def make_request(*messages: Message, preamble: Preamble = EMPTY, **more: Any) -> ModelRequest:
    return ModelRequest("m-1", preamble, Conversation(messages), ModelSettings(), provider="fake", **more)


def encode_body(request: ModelRequest) -> Any:
    return json.loads(encode_request(request))


def items(*messages: Message, **more: Any) -> Any:
    return encode_body(make_request(*messages, **more))["input"]


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def test_the_request_has_the_expected_headers_and_body() -> None:
    answer = Answer(wire(*replied(message("hi"))))
    [request] = converse(answer, headers={"X-Team": "blue-team"}).requests
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "blue-team"
    assert request.json == {
        "model": "m-1",
        "stream": True,
        "store": False,
        "tools": [
            {
                "type": "function",
                "name": "add",
                "description": ADD.description,
                "parameters": ADD.schema,
                "strict": False,
            }
        ],
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hello"}],
    }


def test_no_authorization_header_is_sent_without_a_key() -> None:
    [request] = converse(Answer(wire(*replied(message("hi")))), api_key=None).requests
    assert "authorization" not in request.headers


def test_every_kind_of_message_is_encoded() -> None:
    assert items(
        Message("user", (Text("look"), Text(""), Image("image/png", "QUJD"))),
        assistant(SEALED, Text("ok"), ToolUse("c1", "add", '{"a":1}'), ToolUse("c2", "add", "")),
        Message("tool", (ToolResult("c1", "1"), ToolResult("c2", "no", is_error=True))),
        assistant(Text("one"), Text(""), Text("two")),
        user("thanks"),
    ) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"},
            ],
        },
        SENT_BACK,
        {"role": "assistant", "content": "ok"},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "no"},
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "thanks"},
    ]


# ── Reasoning ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "thinking",
    [
        pytest.param(replace(SEALED, provider="other"), id="of another provider"),
        pytest.param(replace(SEALED, model="m-2"), id="of another model"),
        pytest.param(replace(SEALED, sealed=None), id="not sealed"),
        pytest.param(replace(SEALED, sealed=None, signature="sig"), id="signed, in another format"),
        pytest.param(replace(SEALED, item_id=None), id="without its id"),
    ],
)
def test_reasoning_of_other_models_or_without_encryption_is_not_sent(thinking: Thinking) -> None:
    assert items(user("x"), assistant(thinking, Text("yes")))[1:] == [{"role": "assistant", "content": "yes"}]


def test_encrypted_reasoning_without_a_summary_is_sent() -> None:
    [_, first, _] = items(user("x"), assistant(replace(SEALED, text=""), Text("yes")))
    assert first == SENT_BACK | {"summary": []}


def test_a_conversation_is_encoded_for_each_model() -> None:
    conversation = Conversation([user("x"), assistant(SEALED, Text("yes"))])
    request = ModelRequest("m-1", EMPTY, conversation, ModelSettings(), provider="fake")
    assert encode_body(request)["input"][1] == SENT_BACK
    for other in (replace(request, model="m-2"), replace(request, provider="p"), replace(request, plain=True)):
        assert encode_body(other)["input"][1:] == [{"role": "assistant", "content": "yes"}]
    assert encode_body(request)["input"][1] == SENT_BACK


def test_reasoning_that_led_to_nothing_is_not_sent() -> None:
    parts = (Text("so far"), SEALED, replace(SEALED, item_id="rs_2"), Text(""))
    assert items(user("x"), assistant(*parts))[1:] == [{"role": "assistant", "content": "so far"}]
    assert items(user("x"), assistant(SEALED)) == [{"role": "user", "content": "x"}]


def test_encrypted_reasoning_is_requested_from_models_that_have_it() -> None:
    sealing = Profile(sealed_reasoning=True)
    assert encode_body(replace(HELLO, profile=sealing))["include"] == ["reasoning.encrypted_content"]
    assert "include" not in encode_body(HELLO)
    assert "include" not in encode_body(replace(HELLO, profile=sealing, plain=True))


def test_encrypted_reasoning_is_sent_back_unchanged() -> None:
    whole: dict[str, Any] = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "gBBB"}
    use = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "add", "arguments": "{}"}
    reply = converse(Answer(wire(*replied(whole, use)))).replies[0][-1]
    assert isinstance(reply, Completed)
    assert items(user("x"), assistant(*reply.parts))[1] == whole


# ── Options ────────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_sent_only_if_they_are_set() -> None:
    settings = ModelSettings(max_tokens=7, temperature=0.0, reasoning="low")
    body = encode_body(replace(HELLO, settings=settings, tool_choice="none"))
    chosen = {name: body[name] for name in body.keys() - encode_body(HELLO).keys()}
    assert chosen == {
        "max_output_tokens": 7,
        "temperature": 0.0,
        "reasoning": {"effort": "low"},
        "tool_choice": "none",
    }
    assert body["tools"] == encode_body(HELLO)["tools"]


def test_no_tool_choice_is_sent_without_tools() -> None:
    assert encode_body(make_request(user("x"), tool_choice="none")).keys() == {"model", "stream", "store", "input"}


# ── What a model or a person made up ───────────────────────────────────────────────────────────────

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5, unique=True))
def test_ids_are_legal_and_the_same_in_both_places(ids: list[str]) -> None:
    uses = assistant(*(ToolUse(call_id, "add", "{}") for call_id in ids))
    results = Message("tool", tuple(ToolResult(call_id, "1") for call_id in ids))
    _, *rest = items(user("x"), uses, results)
    asked, answered = rest[: len(ids)], rest[len(ids) :]
    assert [item["call_id"] for item in asked] == [item["call_id"] for item in answered]
    assert len({item["call_id"] for item in asked}) == len(ids)
    assert all(_LEGAL.fullmatch(item["call_id"]) for item in asked)


@pytest.mark.parametrize("name", ["functions.add", "", "add me", "ä", "x" * 100])
def test_a_name_that_no_tool_can_have_is_sent_back_in_a_legal_form(name: str) -> None:
    [_, use] = items(user("x"), assistant(ToolUse("c", name, "{}")))
    assert _LEGAL.fullmatch(use["name"])
    assert use["name"] != name


def test_lone_surrogates_are_not_sent() -> None:
    broken = assistant(Text("a\ud800b"), ToolUse("c\udfff", "add", '{"x":"\udc00"}'))
    preamble = Preamble("\ud83c\udf88", (ADD,))
    body = encode_request(make_request(Message("user", (Text("\ud800"),)), broken, preamble=preamble))
    body.decode()  # it is proper UTF-8
    said = json.loads(body)
    assert said["instructions"] == "🎈"
    assert [item.get("content", item.get("arguments")) for item in said["input"]] == [
        "\ufffd",
        "a\ufffdb",
        '{"x":"\ufffd"}',
    ]


def test_nul_is_escaped() -> None:
    body = encode_request(make_request(Message("user", (Text("a\0b"),)), Message("tool", (ToolResult("c", "\0"),))))
    assert b"\0" not in body
    assert [item.get("content", item.get("output")) for item in json.loads(body)["input"]] == ["a\0b", "\0"]


# ── Bytes ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_conversation_is_still_json() -> None:
    assert items() == []
    silent = (Message("user", ()), assistant(Text("")), assistant(SEALED), user("x"), Message("user", (Text(""),)))
    assert items(*silent) == [{"role": "user", "content": "x"}]


PARTS = st.lists(
    st.sampled_from([SEALED, Text("t"), ToolUse("c", "add", "{}"), replace(SEALED, provider="other")]), max_size=4
)
TURNS = st.one_of(
    st.text(max_size=5).map(user),
    PARTS.map(lambda parts: assistant(*parts)),
    st.just(Message("tool", (ToolResult("c", "1"),))),
)


@given(st.lists(TURNS, max_size=5), st.text(max_size=5), st.booleans())
def test_the_bytes_of_a_conversation_only_grow(turns: list[Message], system: str, sealed: bool) -> None:
    preamble, profile = Preamble(system, (ADD,)), Profile(sealed_reasoning=sealed)
    messages = [user("first"), *turns]
    requests = [
        encode_request(make_request(*messages[:count], preamble=preamble, profile=profile))
        for count in range(1, len(messages) + 1)
    ]
    for shorter, longer in pairwise(requests):
        assert longer.startswith(shorter.removesuffix(b"]}"))
    last = make_request(*messages, preamble=preamble, profile=profile, tool_choice="none")
    silent = encode_request(replace(last, settings=ModelSettings(max_tokens=5, reasoning="high")))
    assert silent.startswith(requests[-1].removesuffix(b"]}"))
    assert json.loads(silent)["store"] is False


def test_a_message_is_encoded_once() -> None:
    request = make_request(user("x"))
    first = encode_request(request)
    request.conversation.messages[0] = user("changed behind its back")
    assert encode_request(request) == first


def test_a_request_of_several_megabytes_is_sent() -> None:
    large = make_request(user("x" * 3_000_000))
    exchange = converse(Answer(wire(*replied(message("long")))), requests=[large])
    assert isinstance(exchange.replies[0][-1], Completed)
    assert exchange.requests[0].body == encode_request(large)
