"""What the anthropic_messages adapter sends."""

import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.anthropic_wire import converse, says
from tests.models.chat import ADD, HELLO, KEY
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import Profile
from treadle.domain.tools import ToolSpec
from treadle.models.formats.anthropic_messages import DEFAULT_MAX_TOKENS, encode_request
from treadle.ports.model import Conversation, ModelRequest, Preamble

MARK = {"type": "ephemeral"}
BUDGET = Profile(thinking="budget")
MINE = Thinking("hm", "fake", "m-1", signature="c2ln")
SEALED = Thinking("", "fake", "m-1", sealed="b3BhcXVl")


def make_request(
    *turns: Message,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    settings: ModelSettings | None = None,
    profile: Profile | None = None,
    **more: Any,
) -> ModelRequest:
    """A request to fake/m-1, which says no more than it must."""
    conversation = Conversation(turns or [user("hello")])
    return ModelRequest(
        "m-1",
        Preamble(system, tools),
        conversation,
        settings or ModelSettings(),
        provider="fake",
        profile=profile or Profile(),
        **more,
    )


def encode_body(*turns: Message, **more: Any) -> Any:
    return json.loads(encode_request(make_request(*turns, **more)))


def blocks(*parts: Part, role: Any = "assistant", **more: Any) -> list[Any]:
    """One message as it is sent."""
    messages = encode_body(user("go"), Message(role, parts), user("and"), **more)["messages"]
    return messages[1]["content"] if len(messages) == 3 else []


def test_the_request_has_the_expected_headers_and_body() -> None:
    [request] = converse(says("hi"), headers={"X-Team": "blue-team"}).requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["x-team"] == "blue-team"
    assert "authorization" not in request.headers
    assert request.json == {
        "model": "m-1",
        "stream": True,
        "tools": [{"name": "add", "description": ADD.description, "input_schema": ADD.schema}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "max_tokens": DEFAULT_MAX_TOKENS,
        "cache_control": MARK,
    }


def test_no_key_header_is_sent_without_a_key() -> None:
    [request] = converse(says("hi"), api_key=None).requests
    assert "x-api-key" not in request.headers


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────


def test_every_kind_of_message_is_encoded() -> None:
    turns = [
        Message("user", (Text("look"), Image("image/png", "QUJD"))),
        Message(
            "assistant", (MINE, SEALED, Text("ok"), ToolUse("c1", "add", '{"a": 1}'), ToolUse("c2", "add", ""))
        ),
        Message("tool", (ToolResult("c1", "1"), ToolResult("c2", "no", is_error=True))),
        user("now"),
        Message("assistant", (Text("done"),)),
    ]
    assert encode_body(*turns)["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "b3BhcXVl"},
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "c2", "name": "add", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": "now"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]


@pytest.mark.parametrize(
    ("result", "block"),
    [
        (ToolResult("c", ""), {}),
        (ToolResult("c", " \n"), {}),
        (ToolResult("c", "", is_error=True), {"content": "It failed and did not say why.", "is_error": True}),
    ],
)
def test_empty_results_are_sent_without_content(result: ToolResult, block: dict[str, Any]) -> None:
    assert blocks(result, role="tool") == [{"type": "tool_result", "tool_use_id": "c", **block}]


@pytest.mark.parametrize("text", ["", " ", "\n\n\t"])
def test_blank_text_is_left_out(text: str) -> None:
    assert blocks(Text(text), Text("x")) == [{"type": "text", "text": "x"}]
    assert blocks(Text(text)) == []


def test_messages_without_content_are_left_out() -> None:
    """However many there are and wherever they stand: what is sent is JSON."""
    nothing = Message("assistant", (Text(""),))
    sent_turns = encode_body(nothing, nothing, user("a"), nothing, user("b"), nothing)["messages"]
    assert [turn["content"][0]["text"] for turn in sent_turns] == ["a", "b"]
    assert encode_body(nothing)["messages"] == []


ILLEGAL = ["", "call:1", "functions.add:0", "ü" * 70, "x" * 100, "a\0b", "a\ud800b"]


@pytest.mark.parametrize("call_id", ["toolu_01A-b", "x" * 64, *ILLEGAL])
def test_ids_are_legal_and_the_same_in_call_and_result(call_id: str) -> None:
    messages = encode_body(
        user("go"),
        Message("assistant", (ToolUse(call_id, "add", "{}"),)),
        Message("tool", (ToolResult(call_id, "1"),)),
    )["messages"]
    use, result = messages[1]["content"][0], messages[2]["content"][0]
    assert use["id"] == result["tool_use_id"]
    assert use["id"].replace("-", "_").replace("_", "a").isalnum()
    assert use["id"].isascii()
    assert 1 <= len(use["id"]) <= 64
    assert (use["id"] == call_id) is (call_id not in ILLEGAL)


def test_ids_that_differ_stay_different() -> None:
    uses = blocks(*(ToolUse(call_id, "add", "{}") for call_id in ("a.b", "a:b", "a_b", "a" * 65, "a" * 66)))
    assert len({use["id"] for use in uses}) == 5


def test_an_illegal_tool_name_is_sent_in_a_legal_form() -> None:
    """Other models have called it, and there was an error result; the conversation goes on all the same."""
    [use] = blocks(ToolUse("c", "functions.add", "{}"))
    assert use["name"].startswith("functions_add_")
    [use] = blocks(ToolUse("c", "add-2_x", "{}"))
    assert use["name"] == "add-2_x"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("", {}),
        ('{"a": {"b": [1.50, null]}}', {"a": {"b": [1.5, None]}}),
        ("[1]", {"arguments": "[1]"}),
        ('"text"', {"arguments": '"text"'}),
        ('{"cut": ', {"arguments": '{"cut": '}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, value: Any) -> None:
    [use] = blocks(ToolUse("c", "add", arguments))
    assert use["input"] == value


def test_arguments_are_sent_as_the_model_wrote_them() -> None:
    body = encode_request(
        make_request(Message("assistant", (ToolUse("c", "add", '{"n": 1.50e0,  "ü":"\\u00fc"}'),)))
    )
    assert '"input":{"n": 1.50e0,  "ü":"\\u00fc"}'.encode() in body


def test_lone_surrogates_are_replaced_and_nul_is_sent() -> None:
    """In a message whose arguments are passed on as they are, too."""
    sent_blocks = blocks(Text("a\ud800b\0"), ToolUse("\ud800", "a\ud800", '{"x": "\ud800"}'), Text("🎈"))
    assert sent_blocks[0] == {"type": "text", "text": "a\ufffdb\0"}
    assert sent_blocks[1]["input"] == {"x": "\ufffd"}
    assert sent_blocks[2]["text"] == "🎈"
    assert blocks(ToolResult("c", "a\udfffb"), role="tool")[0]["content"] == "a\ufffdb"
    assert encode_body(system="a\ud800")["system"][0]["text"] == "a\ufffd"


# ── Thinking that goes back ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("thinking", "goes_back"),
    [
        (MINE, True),
        (SEALED, True),
        (Thinking("", "fake", "m-1", signature="c2ln"), True),
        (Thinking("hm", "fake", "m-1"), False),
        (Thinking("hm", "fake", "m-2", signature="c2ln"), False),
        (Thinking("hm", "other", "m-1", signature="c2ln"), False),
        (Thinking("", "other", "m-1", sealed="b3BhcXVl"), False),
    ],
)
def test_thinking_is_sent_back_only_complete_and_to_its_own_model(thinking: Thinking, goes_back: bool) -> None:
    sent_blocks = blocks(thinking, Text("so"))
    assert len(sent_blocks) == 1 + goes_back
    assert sent_blocks[-1] == {"type": "text", "text": "so"}
    assert blocks(thinking, Text("so"), plain=True) == [{"type": "text", "text": "so"}]


def test_a_conversation_is_encoded_for_each_model() -> None:
    """What was encoded for one of them is not sent to another."""
    turns = Conversation([user("go"), Message("assistant", (MINE, Text("so"))), user("on")])
    for _ in range(2):
        for model, plain, count in (("m-1", False, 2), ("m-2", False, 1), ("m-1", True, 1)):
            request = ModelRequest(model, Preamble("", ()), turns, ModelSettings(), provider="fake", plain=plain)
            assert len(json.loads(encode_request(request))["messages"][1]["content"]) == count


def test_thinking_at_the_end_of_a_message_is_left_out() -> None:
    """The call that it led to was cut; the provider rejects it there."""
    assert [block["type"] for block in blocks(MINE, Text("so"), MINE, SEALED)] == ["thinking", "text"]
    assert blocks(MINE) == []


# ── Thinking that is asked for ─────────────────────────────────────────────────────────────────────


def options(*turns: Message, reasoning: Any = "high", profile: Profile | None = None, **more: Any) -> Any:
    """All of a request but what does not change."""
    settings = ModelSettings(reasoning=reasoning, temperature=more.pop("temperature", None))
    settings = ModelSettings(more.pop("max_tokens", None), settings.temperature, settings.reasoning)
    body = encode_body(*turns, settings=settings, profile=profile, **more)
    constant = ("model", "stream", "tools", "system", "messages", "cache_control")
    return {name: value for name, value in body.items() if name not in constant}


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_the_effort_enables_adaptive_thinking(effort: str) -> None:
    assert options(reasoning=effort) == {
        "max_tokens": 32_768,
        "thinking": ADAPTIVE,
        "output_config": {"effort": effort},
    }


@pytest.mark.parametrize(
    ("effort", "max_tokens", "budget"),
    [
        ("low", None, 2048),
        ("medium", None, 8192),
        ("high", None, 16_384),
        ("high", 100_000, 24_576),
        ("high", 4000, 2000),
        ("low", 2048, 1024),
    ],
)
def test_the_effort_sets_a_thinking_budget(effort: str, max_tokens: int | None, budget: int) -> None:
    asked = options(reasoning=effort, profile=BUDGET, max_tokens=max_tokens)
    assert asked["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert budget < asked["max_tokens"]
    assert "output_config" not in asked


def test_a_short_reply_limit_disables_thinking() -> None:
    assert options(profile=BUDGET, max_tokens=2047, temperature=0.5) == {"max_tokens": 2047, "temperature": 0.5}


def test_the_reply_limit_comes_from_the_agent_or_the_catalog() -> None:
    """As the agent says, or else the catalog; it is never left out."""
    known = Profile(max_output=64_000)
    assert options(reasoning=None) == {"max_tokens": DEFAULT_MAX_TOKENS}
    assert options(reasoning=None, profile=known) == {"max_tokens": 64_000}
    assert options(reasoning=None, profile=known, max_tokens=7) == {"max_tokens": 7}
    assert options(profile=known)["max_tokens"] == 64_000


def test_temperature_is_left_out_if_thinking_is_on() -> None:
    assert options(reasoning=None, temperature=0.0) == {"max_tokens": DEFAULT_MAX_TOKENS, "temperature": 0.0}
    for profile in (Profile(), BUDGET):
        asked = options(temperature=0.0, profile=profile)
        assert "thinking" in asked
        assert "temperature" not in asked


CALL, RESULT = ToolUse("c1", "add", "{}"), Message("tool", (ToolResult("c1", "1"),))
THEIRS = Thinking("hm", "other", "m-9", signature="c2ln")


@pytest.mark.parametrize(
    ("turns", "asked"),
    [
        pytest.param([user("a")], True, id="a new turn"),
        pytest.param([user("a"), Message("assistant", (CALL,)), RESULT, user("b")], False, id="steered"),
        pytest.param([user("a"), Message("assistant", (MINE, CALL)), RESULT], True, id="thought"),
        pytest.param([user("a"), Message("assistant", (SEALED, CALL)), RESULT], True, id="thought, redacted"),
        pytest.param(
            [user("a"), Message("assistant", (MINE, CALL)), RESULT, user("b")], True, id="thought, steered"
        ),
        pytest.param([user("a"), Message("assistant", (CALL,)), RESULT], False, id="did not think"),
        pytest.param([user("a"), Message("assistant", (THEIRS, CALL)), RESULT], False, id="another model thought"),
        pytest.param(
            [user("a"), Message("assistant", (Thinking("hm", "fake", "m-1"), CALL)), RESULT],
            False,
            id="thought without a signature",
        ),
        pytest.param(
            [user("a"), Message("assistant", (MINE, CALL)), RESULT, Message("assistant", (CALL,)), RESULT],
            True,
            id="thought when the turn began",
        ),
        pytest.param(
            [user("a"), Message("assistant", (CALL,)), RESULT, Message("assistant", (MINE, CALL)), RESULT],
            False,
            id="another model began the turn",
        ),
        pytest.param(
            [user("a"), Message("assistant", (CALL,)), RESULT, Message("assistant", (Text("b"),)), user("c")],
            True,
            id="that turn is over",
        ),
    ],
)
def test_a_turn_with_a_thinking_budget_continues_as_it_started(turns: list[Message], asked: bool) -> None:
    assert ("thinking" in options(*turns, profile=BUDGET)) is asked
    assert options(*turns)["thinking"] == ADAPTIVE  # which may think or not, whenever it likes
    assert options(*turns, plain=True) == {"max_tokens": 32_768, "output_config": {"effort": "high"}}
    assert options(*turns, plain=True, profile=BUDGET) == {"max_tokens": 32_768}


def test_an_assistant_message_without_parts_is_encoded() -> None:
    assert "thinking" not in options(user("a"), Message("assistant", ()), RESULT, profile=BUDGET)


# ── The cache ──────────────────────────────────────────────────────────────────────────────────────


def test_tools_are_sent_even_if_they_may_not_be_called() -> None:
    body = encode_body(tools=(ADD,), tool_choice="none")
    assert body["tool_choice"] == {"type": "none"}
    assert body["tools"] == encode_body(tools=(ADD,))["tools"]
    assert "tool_choice" not in encode_body(tools=(ADD,))
    assert "tool_choice" not in encode_body(tool_choice="none")


def marks(value: Any) -> int:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return ("cache_control" in fields) + sum(map(marks, fields.values()))
    return sum(map(marks, cast("list[Any]", value))) if isinstance(value, list) else 0


def test_cache_marks_follow_the_preamble_and_the_last_turn() -> None:
    """Behind all that never changes, and behind the last turn."""
    more = ToolSpec("sub", "", {"type": "object"})
    with_system = encode_body(system="s", tools=(ADD, more))
    assert with_system["system"][-1]["cache_control"] == MARK
    assert marks(with_system["tools"]) == 0
    only_tools = encode_body(tools=(ADD, more))
    assert ["cache_control" in tool for tool in only_tools["tools"]] == [False, True]
    assert "system" not in only_tools
    bare = encode_body()
    assert (bare["cache_control"], marks(bare)) == (MARK, 1)
    assert marks(with_system) == marks(only_tools) == 2


@pytest.mark.parametrize(
    ("calls", "words", "marked"),
    [(1, (), False), (9, (), False), (9, (Text("so"),), True), (10, (), True), (40, (), True)],
)
def test_a_wide_turn_gets_a_second_cache_mark(calls: int, words: tuple[Text, ...], marked: bool) -> None:
    """A mark looks back over twenty blocks; what was kept before more of them needs a mark of its own."""
    uses = Message("assistant", (*words, *(ToolUse(f"c{n}", "add", "{}") for n in range(calls))))
    results = Message("tool", tuple(ToolResult(f"c{n}", str(n)) for n in range(calls)))
    body = encode_body(user("a"), Message("assistant", (CALL,)), RESULT, uses, results, system="s", tools=(ADD,))
    assert marks(body["messages"]) == marked
    assert body["messages"][2]["content"][-1].get("cache_control") == (MARK if marked else None)
    assert marks(body) <= 4
    later = encode_body(user("a"), uses, results, Message("assistant", (Text("b"),)), user("c"))
    assert marks(later["messages"]) == 0


def test_a_wide_turn_without_a_preceding_turn_gets_no_mark() -> None:
    wide = Message("assistant", tuple(Text(str(n)) for n in range(30)))
    assert marks(encode_body(wide)["messages"]) == 0
    assert marks(encode_body(Message("assistant", (Text("a"),)), wide)["messages"]) == 0
    assert marks(encode_body(Message("user", ()), wide)["messages"]) == 0


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=5)),
    st.builds(ToolUse, st.text(max_size=5), st.text(max_size=5), st.text(max_size=10)),
    st.builds(ToolResult, st.text(max_size=5), st.text(max_size=5), st.booleans()),
    st.sampled_from([MINE, SEALED, THEIRS]),
)
TURNS = st.lists(
    st.builds(
        Message,
        st.sampled_from(["user", "assistant", "tool"]),
        st.lists(PARTS, min_size=1, max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=5,
)


@given(TURNS, st.booleans())
def test_each_request_begins_with_the_bytes_of_the_previous_one(turns: list[Message], with_system: bool) -> None:
    """Also where the options behind the conversation have changed."""
    conversation = Conversation()
    preamble = Preamble("Be brief." if with_system else "", (ADD,))
    bodies: list[bytes] = []
    for turn in turns:
        conversation.messages.append(turn)
        settings = ModelSettings(max_tokens=100 + len(bodies), reasoning="low")
        body = encode_request(ModelRequest("m-1", preamble, conversation, settings, provider="fake"))
        json.loads(body)
        bodies.append(body[: body.rindex(b'],"max_tokens":')])
    for shorter, longer in pairwise(bodies):
        assert longer.startswith(shorter)


@given(TURNS)
def test_cached_bytes_equal_freshly_encoded_ones(turns: list[Message]) -> None:
    conversation = Conversation()
    for turn in turns:
        conversation.messages.append(turn)
        encode_request(ModelRequest("m-1", HELLO.preamble, conversation, ModelSettings(), provider="fake"))
    kept = ModelRequest("m-1", HELLO.preamble, conversation, ModelSettings(), provider="fake")
    anew = ModelRequest("m-1", HELLO.preamble, Conversation(turns), ModelSettings(), provider="fake")
    assert encode_request(kept) == encode_request(anew)
