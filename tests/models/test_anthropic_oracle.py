"""Compares the anthropic_messages adapter with the provider's official client: both read a stream alike, ours
refuses what theirs ignores, and our requests have their types."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.anthropic_wire import (
    PING,
    STOP,
    asks,
    begins,
    closes,
    endpoint,
    ends,
    event,
    more,
    opens,
    redacted,
    stream,
    text,
    thinking,
)
from tests.fake_endpoint import Answer, FakeEndpoint
from tests.models.chat import ADD, HELLO, KEY
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import Profile
from treadle.models.formats.anthropic_messages import FORMAT, encode_request
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble

# ── Replies ────────────────────────────────────────────────────────────────────────────────────────


class ReplySummary(NamedTuple):
    """What a client made of a stream. Arguments are the values that they parse to."""

    parts: list[Any]
    stop: str | None
    sent: int
    received: int
    cache_read: int
    cache_written: int


class BothReplies(NamedTuple):
    theirs: Any
    """The message of the official client, or what it raised."""
    ours: Completed | Failed


async def _theirs(url: str) -> Any:
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    asked: Any = {"model": "m-1", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
    http = DefaultAsyncHttpxClient(verify=False)  # no certificate is asked for, and to read them all takes long
    async with AsyncAnthropic(
        api_key=KEY, base_url=url.removesuffix("/v1"), max_retries=0, http_client=http
    ) as client:
        try:
            async with client.messages.stream(**asked) as heard:
                return await heard.get_final_message()
        except Exception as raised:
            return raised


async def read_with_both(pieces: Sequence[bytes], **more: Any) -> BothReplies:
    """The same bytes, cut in the same places, for each of the two."""

    connections = Connections()
    answer = Answer(pieces, **more)
    async with FakeEndpoint(answer, answer) as server:
        try:
            theirs = await _theirs(server.url)
            client = ModelClient(FORMAT, endpoint(server.url), connections)
            return BothReplies(theirs, await client.reply(HELLO, lambda _: None))
        finally:
            await connections.close()


def summarize_theirs(message: Any) -> ReplySummary:
    parts: list[Any] = []
    for block in message.content:
        match block.type:
            case "text":
                parts += [Text(block.text)] if block.text else []
            case "thinking":
                field = None if block.signature else "thinking"
                parts.append(Thinking(block.thinking, "fake", "m-1", block.signature, field=field))
            case "redacted_thinking":
                parts.append(Thinking("", "fake", "m-1", sealed=block.data))
            case "tool_use":
                parts.append((block.id, block.name, block.input))
            case _:
                pass
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    sent = usage.input_tokens + read + written
    return ReplySummary(parts, message.stop_reason, sent, usage.output_tokens, read, written)


def summarize_ours(completed: Completed) -> ReplySummary:
    parts = [
        (part.call_id, part.name, json.loads(part.arguments)) if isinstance(part, ToolUse) else part
        for part in completed.parts
    ]
    usage = completed.usage
    assert not usage.estimated
    stop = completed.raw_stop or completed.stop
    return ReplySummary(
        parts,
        None if stop == "null" else stop,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )


CACHED: dict[str, Any] = {"cache_read_input_tokens": 2000, "cache_creation_input_tokens": 300}
MANY_CALLS = [asks(n, f"toolu_{n}", "add", '{"a"', f":{n}", "}") for n in range(12)]
CORPUS: dict[str, list[bytes]] = {
    "text": stream(text(0, "Hel", "lo", "!")),
    "text in many scripts": stream(text(0, "grüße ", "日本", " 🎈", "\u2028", "\x00")),
    "several blocks of text": stream(text(0, "a"), text(1, "b"), text(2)),
    "a call": stream(asks(0, "toolu_1", "add", "", '{"a": 1', '.5, "b": [nul', "l, true]}"), stop="tool_use"),
    "a call without arguments": stream(asks(0, "toolu_1", "now", ""), stop="tool_use"),
    "text and many calls": stream(*MANY_CALLS, text(12, "so"), stop="tool_use"),
    "escapes in arguments": stream(asks(0, "t", "add", '{"a":"\\u00', 'fc\\n\\"\\ud83c\\udf88"}'), stop="tool_use"),
    "thinking": stream(thinking(0, "h", "m", signature="c2ln"), text(1, "So.")),
    "thinking kept by the provider": stream(thinking(0, signature="c2ln"), text(1, "So.")),
    "redacted thinking": stream(redacted(0, "b3BhcXVl"), text(1, "So.")),
    "thinking between calls": stream(
        thinking(0, "a", signature="czE="),
        asks(1, "t1", "add", "{}"),
        thinking(2, "b", signature="czI="),
        asks(3, "t2", "add", "{}"),
        stop="tool_use",
    ),
    "a signature said twice": stream(
        [*thinking(0, "a", signature="czE=")[:-1], more(0, "signature_delta", signature="czI="), closes(0)],
        text(1, "x"),
    ),
    "the cache, counted at the start": [begins(10, **CACHED), *text(0, "x"), ends(), STOP],
    "the cache, counted at the end": [begins(10), *text(0, "x"), ends(tokens=7, input_tokens=11, **CACHED), STOP],
    "counted more than once": [begins(10), *text(0, "x"), ends(None, tokens=3), ends("max_tokens", tokens=7), STOP],
    "refused": stream(text(0, "Sur"), stop="refusal"),
    "too long": stream(text(0, "and so o"), stop="max_tokens"),
    "paused": stream(text(0, "x"), stop="pause_turn"),
    "no reason": stream(text(0, "x"), stop=None),
    "a reason that nobody has seen": stream(text(0, "x"), stop="flux_capacitor"),
    "nothing": stream(),
    "pings and comments": [PING, begins(), PING, b": comment\n\n", *text(0, "x"), PING, ends(), PING, STOP],
    "words in the first event of a block": stream(
        [opens(0, "text", text="He"), more(0, "text_delta", text="llo"), closes(0)],
        [opens(1, "tool_use", id="t", name="add", input={"a": 1}), closes(1)],
        [opens(2, "tool_use", id="u", name="add", input={"a": 2}), *asks(2, "u", "add", '{"a":2}')[1:]],
        stop="tool_use",
    ),
    "blocks at the same time": stream(
        [
            opens(0, "text", text=""),
            opens(1, "tool_use", id="t", name="add", input={}),
            more(1, "input_json_delta", partial_json='{"a"'),
            more(0, "text_delta", text="x"),
            more(1, "input_json_delta", partial_json=":1}"),
            closes(1),
            closes(0),
        ],
        stop="tool_use",
    ),
    "what the provider does by itself": stream(
        [
            opens(0, "server_tool_use", id="s", name="web_search", input={}),
            more(0, "input_json_delta", partial_json='{"query": "x"}'),
            closes(0),
            opens(1, "web_search_tool_result", tool_use_id="s", content=[]),
            closes(1),
        ],
        text(2, "found"),
    ),
    "what nobody knows yet": stream(
        [event("wobble", index=0), opens(0, "hologram", data="x"), closes(0)],
        [opens(1, "text", text=""), more(1, "wobble_delta", text="z"), more(1, "text_delta", text="x"), closes(1)],
    ),
    "arguments at the wrong block": stream(
        [opens(0, "text", text=""), more(0, "input_json_delta", partial_json="{}"), closes(0)], text(1, "x")
    ),
}


def in_lines_of(line_end: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda pieces: [b"".join(pieces).replace(b"\n", line_end)]


def byte_by_byte(pieces: list[bytes]) -> list[bytes]:
    body = b"".join(pieces)
    return [body[at : at + 1] for at in range(len(body))]


WAYS = {
    "event by event": list[bytes],
    "at once": in_lines_of(b"\n"),
    "at once, with CRLF": in_lines_of(b"\r\n"),
    "byte by byte": byte_by_byte,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CORPUS)
async def test_both_clients_read_the_same_message(name: str, way: str) -> None:
    theirs, ours = await read_with_both(WAYS[way](CORPUS[name]))
    assert isinstance(ours, Completed), ours
    assert summarize_ours(ours) == summarize_theirs(theirs)


# What is generated: blocks of any kind, in pieces of any size.

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | WORDS, st.lists, max_leaves=4)
ARGUMENTS = st.dictionaries(WORDS, JSON, max_size=3).map(json.dumps)
SIGNATURES = st.text("abcXYZ019+/=", min_size=1, max_size=20)


def cut(body: Any, cuts: list[int]) -> list[Any]:
    edges = sorted({0, len(body), *(at % (len(body) + 1) for at in cuts)})
    return [body[start:end] for start, end in pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=6)


@st.composite
def blocks(draw: st.DrawFn) -> list[list[bytes]]:
    made: list[list[bytes]] = []
    for index, kind in enumerate(
        draw(st.lists(st.sampled_from(["text", "thinking", "redacted", "call"]), max_size=5))
    ):
        match kind:
            case "text":
                made.append(text(index, *cut(draw(WORDS), draw(CUTS))))
            case "thinking":
                made.append(thinking(index, *cut(draw(WORDS), draw(CUTS)), signature=draw(SIGNATURES)))
            case "redacted":
                made.append(redacted(index, draw(SIGNATURES)))
            case _:
                made.append(asks(index, f"toolu_{index}", "add", *cut(draw(ARGUMENTS), draw(CUTS))))
    return made


@settings(deadline=None, max_examples=25)
@given(blocks(), st.integers(1, 9999), st.integers(1, 9999), st.integers(0, 9999), CUTS)
async def test_both_clients_read_the_same_message_for_any_split(
    made: list[list[bytes]], sent: int, received: int, cached: int, cuts: list[int]
) -> None:
    calls = any(b'"tool_use"' in block[0] for block in made)
    end = ends("tool_use" if calls else "end_turn", received)
    body = b"".join(
        [begins(sent, cache_read_input_tokens=cached), *[part for block in made for part in block], end]
    )
    theirs, ours = await read_with_both(cut(body + STOP, cuts))
    assert isinstance(ours, Completed), ours
    assert summarize_ours(ours) == summarize_theirs(theirs)


# ── What the official client swallows ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("length", [2, 4, 5])
async def test_a_stream_that_ends_early_fails_here_and_passes_there(length: int) -> None:
    """For them it is a message like any other; for us it has failed."""
    theirs, ours = await read_with_both(stream(text(0, "half", " an answer"))[:length])
    assert (theirs.type, theirs.stop_reason) == ("message", None)
    assert isinstance(ours, Failed)
    assert (ours.kind, ours.retryable) == ("malformed", True)


async def test_a_call_that_ends_early_fails_here_and_passes_there() -> None:
    """Their client builds arguments from what arrived. Ours makes no call."""
    theirs, ours = await read_with_both(stream(asks(0, "t", "remove", '{"path": "/tmp/x", "only_if": "em'))[:4])
    assert theirs.content[0].input == {"path": "/tmp/x"}
    assert isinstance(ours, Failed)


@pytest.mark.parametrize(
    ("arguments", "believed"),
    [('{"path": "/', {}), ('{"all": tru', {}), ('{"path": "/", "n": 1', {"path": "/", "n": 1}), ("[1, 2", [1, 2])],
)
async def test_cut_arguments_before_a_proper_end_fail_here_and_pass_there(arguments: str, believed: Any) -> None:
    """Theirs is a call like any other, with half of what was meant or with nothing. Ours is none."""
    theirs, ours = await read_with_both(stream(asks(0, "t", "remove", arguments), stop="tool_use"))
    assert (theirs.stop_reason, theirs.content[0].input) == ("tool_use", believed)
    assert isinstance(ours, Failed)
    assert "has arguments that are not a JSON object" in ours.message


async def test_a_call_cut_by_the_token_limit_is_left_out_here_and_kept_there() -> None:
    """Their client returns the call with incomplete arguments. Ours leaves it out and reports the stop reason."""
    theirs, ours = await read_with_both(
        stream(text(0, "x"), asks(1, "t", "write", '{"text": "a", "more": "b'), stop="max_tokens")
    )
    assert theirs.content[1].input == {"text": "a"}
    assert isinstance(ours, Completed)
    assert (ours.parts, ours.stop) == ((Text("x"),), "max_tokens")


async def test_a_cut_chunked_body_is_an_error_on_both_sides() -> None:
    """Both notice."""
    theirs, ours = await read_with_both(stream(text(0, "x"))[:3], ending="cut")
    assert isinstance(theirs, Exception)
    assert isinstance(ours, Failed)


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [("overloaded_error", "overloaded"), ("api_error", "server"), ("rate_limit_error", "rate_limited")],
)
async def test_an_error_in_mid_stream_is_an_error_on_both_sides(kind: str, meaning: str) -> None:
    """Both notice; ours knows what to do next."""
    said = event("error", error={"type": kind, "message": "not now"})
    theirs, ours = await read_with_both([*stream(text(0, "x"))[:3], said])
    assert isinstance(theirs, Exception)
    assert "not now" in str(theirs)
    assert isinstance(ours, Failed)
    assert (ours.kind, ours.retryable) == (meaning, True)


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


@cache
def official_types() -> Any:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming
    from pydantic import TypeAdapter

    return TypeAdapter[Any](MessageCreateParamsStreaming)


def validate_officially(body: bytes) -> Any:
    """The request as the official client's own types read it. They drop what they do not know."""
    return _read(official_types().validate_python(json.loads(body)))


def _read(value: Any) -> Any:
    """Iterables are checked as they are read: read all of them."""
    if isinstance(value, dict):
        return {name: _read(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_read(inner) for inner in value]


MINE = Thinking("hm", "fake", "m-1", signature="c2ln")
WIDE = range(12)
TURNS = [
    Message("user", (Text("look"), Image("image/png", "QUJD"))),
    Message(
        "assistant",
        (MINE, Thinking("", "fake", "m-1", sealed="b3Bh"), Text("ok"), ToolUse("c:1", "add", '{"a": [1.5, null]}')),
    ),
    Message("tool", (ToolResult("c:1", "1"),)),
    Message("assistant", tuple(ToolUse(f"c{n}", "functions.add", "[]") for n in WIDE)),
    Message("tool", tuple(ToolResult(f"c{n}", "", is_error=n % 2 == 0) for n in WIDE)),
]
SETTINGS = [
    ModelSettings(),
    ModelSettings(max_tokens=100),
    ModelSettings(reasoning="low"),
    ModelSettings(reasoning="medium"),
    ModelSettings(max_tokens=50_000, reasoning="high"),
]


@pytest.mark.parametrize("asked", SETTINGS, ids=repr)
@pytest.mark.parametrize("how", ["adaptive", "budget"])
@pytest.mark.parametrize("length", [1, 3, 5])
@pytest.mark.parametrize(
    "preamble", [HELLO.preamble, Preamble("", (ADD, ADD)), Preamble("s", ()), Preamble("", ())]
)
def test_requests_are_of_the_official_types(
    asked: ModelSettings, how: Any, length: int, preamble: Preamble
) -> None:
    """Every field of them, however deep: none is unknown there."""
    for choice, plain in (("auto", False), ("none", True)):
        request = ModelRequest(
            model="m-1",
            preamble=preamble,
            conversation=Conversation(TURNS[:length]),
            settings=asked,
            tool_choice=cast("Any", choice),
            provider="fake",
            profile=Profile(thinking=how),
            plain=plain,
        )
        body = encode_request(request)
        assert validate_officially(body) == json.loads(body)


def test_temperature_is_sent_although_the_official_types_lack_it() -> None:
    """Older models take it, and newer ones refuse it: it is sent where the agent sets it."""
    request = ModelRequest(
        "m-1", HELLO.preamble, HELLO.conversation, ModelSettings(temperature=0.5), provider="fake"
    )
    body = encode_request(request)
    assert json.loads(body) == validate_officially(body) | {"temperature": 0.5}


PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, WORDS),
    st.builds(ToolUse, WORDS, WORDS, ARGUMENTS | WORDS),
    st.builds(ToolResult, WORDS, WORDS, st.booleans()),
    st.just(MINE),
)


@settings(deadline=None)
@given(st.lists(st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(PARTS).map(tuple))))
def test_any_conversation_is_of_the_official_types(turns: list[Message]) -> None:
    body = encode_request(
        ModelRequest("m-1", HELLO.preamble, Conversation([user("a"), *turns]), ModelSettings(), provider="fake")
    )
    assert validate_officially(body) == json.loads(body)


def test_the_official_types_refuse_invalid_requests() -> None:
    """So that the checks above mean something."""
    from pydantic import ValidationError

    body = json.loads(encode_request(HELLO))
    assert validate_officially(json.dumps(body | {"flux": 1}).encode()) == body
    for wrong in ({"role": "user", "content": [{"type": "text"}]}, {"role": "user", "content": [{"type": "odd"}]}):
        with pytest.raises(ValidationError):
            validate_officially(json.dumps(body | {"messages": [wrong]}).encode())
    with pytest.raises(ValidationError):
        validate_officially(
            json.dumps({name: value for name, value in body.items() if name != "max_tokens"}).encode()
        )
