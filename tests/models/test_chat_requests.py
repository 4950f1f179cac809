"""What the chat_completions adapter sends."""

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_endpoint import (
    says,
)
from tests.models.chat import ADD, HELLO, KEY, converse
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import Profile
from treadle.models.formats.chat_completions import encode_request
from treadle.ports.model import (
    Conversation,
    ModelRequest,
    Preamble,
)


def encode_body(request: ModelRequest) -> Any:
    return json.loads(encode_request(request))


def test_the_request_has_the_expected_headers_and_body() -> None:
    [request] = converse(says("hi"), headers={"X-Team": "blue-team"}).requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "blue-team"
    assert request.json == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": ADD.description, "parameters": ADD.schema},
            }
        ],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
    }


def test_no_authorization_header_is_sent_without_a_key() -> None:
    [request] = converse(says("hi"), api_key=None).requests
    assert "authorization" not in request.headers


def test_every_kind_of_message_is_encoded() -> None:
    turns = [
        Message("user", (Text("look"), Image("image/png", "QUJD"))),
        Message("assistant", (Thinking("hm", "fake", "m-1"), Text("ok"), ToolUse("c1", "add", '{"a":1}'))),
        Message("tool", (ToolResult("c1", "1"), ToolResult("c2", "no", is_error=True))),
        Message("assistant", (ToolUse("c3", "add", "{}"),)),
        Message("assistant", (Thinking("only", "fake", "m-1"),)),
        Message("assistant", (Text("done"),)),
    ]
    assert encode_body(ModelRequest("m", Preamble("", ()), Conversation(turns), ModelSettings()))["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "no"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "assistant", "content": "done"},
    ]


def test_settings_are_sent_only_if_they_are_set() -> None:
    settings = ModelSettings(max_tokens=7, temperature=0.0, reasoning="low")
    body = encode_body(ModelRequest("m", HELLO.preamble, HELLO.conversation, settings, tool_choice="none"))
    chosen = {name: body[name] for name in ("max_tokens", "temperature", "reasoning_effort", "tool_choice")}
    assert chosen == {"max_tokens": 7, "temperature": 0.0, "reasoning_effort": "low", "tool_choice": "none"}
    assert body["tools"] == encode_body(HELLO)["tools"]


def test_sampling_parameters_of_the_model_are_sent_unless_the_agent_sets_them() -> None:
    profile = Profile(sampling={"temperature": 0.4, "repeat_penalty": 1.1})
    plain = ModelRequest("m", Preamble("", ()), HELLO.conversation, ModelSettings(), profile=profile)
    body = encode_body(plain)
    assert (body["temperature"], body["repeat_penalty"]) == (0.4, 1.1)
    body = encode_body(msgspec.structs.replace(plain, settings=ModelSettings(temperature=0.0)))
    assert (body["temperature"], body["repeat_penalty"]) == (0.0, 1.1)


def test_an_empty_conversation_is_still_json() -> None:
    assert encode_body(ModelRequest("m", Preamble("", ()), Conversation(), ModelSettings()))["messages"] == []
    assert "tool_choice" not in encode_body(
        ModelRequest("m", Preamble("", ()), Conversation(), ModelSettings(), tool_choice="none")
    )


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.text(max_size=5))
def test_the_bytes_of_a_conversation_only_grow(texts: list[str], system: str) -> None:
    preamble = Preamble(system, (ADD,))
    messages = [user(text) for text in texts]
    requests = [
        encode_request(ModelRequest("m", preamble, Conversation(messages[:count]), ModelSettings()))
        for count in range(1, len(messages) + 1)
    ]
    for shorter, longer in pairwise(requests):
        assert longer.startswith(shorter.removesuffix(b"]}"))
    silent = encode_request(
        ModelRequest("m", preamble, Conversation(messages), ModelSettings(max_tokens=5), "none")
    )
    assert silent.startswith(requests[-1].removesuffix(b"]}"))


def test_a_message_is_encoded_once() -> None:
    conversation = Conversation([user("x")])
    request = ModelRequest("m", Preamble("", ()), conversation, ModelSettings())
    first = encode_request(request)
    conversation.messages[0] = user("changed behind its back")
    assert encode_request(request) == first


def test_lone_surrogates_are_not_sent() -> None:
    body = encode_request(ModelRequest("m", Preamble("", ()), Conversation([user("a\ud800b")]), ModelSettings()))
    assert json.loads(body)["messages"] == [{"role": "user", "content": "a\ufffdb"}]
