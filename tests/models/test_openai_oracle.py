"""OpenAI's own SDK as an oracle, for both of its formats: it accepts the requests that Treadle sends and hears the
same replies. Where it lets a fault pass, Treadle does not; both are stated here."""

import json
import re
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fake_endpoint import DONE, Answer, FakeEndpoint
from tests.models import chat
from tests.models.chat import ADD, HELLO
from tests.responses_wire import (
    CREATED,
    IN_PROGRESS,
    Event,
    Item,
    added,
    arguments_delta,
    call,
    completed_event,
    done,
    endpoint,
    failed_event,
    incomplete_event,
    message,
    reasoning,
    refusal,
    replied,
    text_delta,
    told,
    usage,
    wire,
)
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, user
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.models.formats import chat_completions, responses
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble

pytestmark = pytest.mark.filterwarnings(
    "ignore:Pydantic serializer warnings"
)  # of the SDK, at what it does not know

Mode = Literal["chat_completions", "responses"]


class ReplySummary(NamedTuple):
    """A reply, as far as both sides tell it."""

    text: str
    calls: list[tuple[str, str, str]]
    stop: str | None
    usage: Usage


# ── Both sides of one stream ───────────────────────────────────────────────────────────────────────


async def treadle_hears(mode: Mode, url: str) -> Completed | Failed:
    connections = Connections()
    format_, reached = {
        "chat_completions": (chat_completions.FORMAT, chat.endpoint(url)),
        "responses": (responses.FORMAT, endpoint(url)),
    }[mode]
    try:
        return await ModelClient(format_, reached, connections).reply(HELLO, lambda _: None)
    finally:
        await connections.close()


async def sdk_hears(mode: Mode, url: str) -> Any:
    """The final completion or response, as the SDK's own helper puts it together."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(verify=False, timeout=None)  # reading all certificates takes long
    async with AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=http) as sdk:
        if mode == "chat_completions":
            async with sdk.chat.completions.stream(model="m-1", messages=[]) as completion:
                await completion.until_done()
                return completion.current_completion_snapshot
        final: Any = None
        async with sdk.responses.stream(model="m-1", input="hello") as stream:
            async for event in stream:
                if event.type == "response.completed" or event.type == "response.incomplete":
                    final = event.response
        return final


async def hear(mode: Mode, answer: Answer) -> tuple[Any, Completed | Failed]:
    """What the SDK makes of an answer, or what it raises; and what Treadle does."""

    async with FakeEndpoint(answer, answer) as server:
        return await _catch(sdk_hears, mode, server.url), await treadle_hears(mode, server.url)


async def _catch(work: Callable[[Mode, str], Awaitable[Any]], mode: Mode, url: str) -> Any:
    try:
        return await work(mode, url)
    except Exception as error:  # it is compared with what Treadle makes of it
        return error


def summarize_ours(reply: Completed | Failed) -> ReplySummary:
    assert isinstance(reply, Completed), reply
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    calls = [(part.call_id, part.name, part.arguments) for part in reply.parts if isinstance(part, ToolUse)]
    return ReplySummary(text, calls, reply.raw_stop or reply.stop, reply.usage)


def summarize_theirs(mode: Mode, final: Any) -> ReplySummary:
    if isinstance(final, Exception):
        raise final
    return _summarize_completion(final) if mode == "chat_completions" else _summarize_response(final)


def _summarize_completion(completion: Any) -> ReplySummary:
    [choice] = completion.choices
    said, counted = choice.message, completion.usage
    calls = [(use.id, use.function.name, use.function.arguments or "{}") for use in said.tool_calls or ()]
    stops = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
    stop = "refusal" if said.refusal else stops.get(choice.finish_reason, choice.finish_reason)
    details = counted.prompt_tokens_details
    cached, written = (details.cached_tokens or 0, details.cache_write_tokens or 0) if details else (0, 0)
    text = (said.content or "") + (said.refusal or "")
    calls = [] if stop in ("max_tokens", "refusal") else calls  # which Treadle never runs
    return ReplySummary(text, calls, stop, Usage(counted.prompt_tokens, counted.completion_tokens, cached, written))


def _summarize_response(final: Any) -> ReplySummary:
    said = [part for item in final.output if item.type == "message" for part in item.content]
    refused = any(part.type == "refusal" for part in said)
    text = "".join(part.refusal if part.type == "refusal" else part.text for part in said)
    uses = [item for item in final.output if item.type == "function_call"]
    calls = [(use.call_id, use.name, use.arguments or "{}") for use in uses]
    if refused:
        stop = "refusal"
    elif final.incomplete_details is not None:
        reason = final.incomplete_details.reason
        stop = "refusal" if reason == "content_filter" else "max_tokens"
        calls = []  # which Treadle never runs
    else:
        stop = "tool_use" if calls else "end_turn"
    counted, details = final.usage, final.usage.input_tokens_details
    cached, written = details.cached_tokens, details.cache_write_tokens
    return ReplySummary(text, calls, stop, Usage(counted.input_tokens, counted.output_tokens, cached, written))


async def agree(mode: Mode, answer: Answer) -> ReplySummary:
    """Both sides hear the same; that is returned."""
    sdk, ours = await hear(mode, answer)
    heard = summarize_ours(ours)
    assert heard == summarize_theirs(mode, sdk)
    return heard


def malformed(ours: Completed | Failed) -> Failed:
    assert isinstance(ours, Failed), ours
    assert (ours.kind, ours.retryable) == ("malformed", True)
    return ours


# ── Streams of chat_completions ────────────────────────────────────────────────────────────────────


def chunk(finish: str | None = None, counted: Any = None, **fields: Any) -> bytes:
    """A chunk as OpenAI sends it."""
    choices = [{"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}]
    return _chunk(choices, counted)


def _chunk(choices: list[Any], counted: Any) -> bytes:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1750000000, "model": "m-1"}
    whole = about | {"system_fingerprint": None, "choices": choices, "usage": counted, "obfuscation": "x8"}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


COUNTED = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
BEGIN = chunk(role="assistant", content="", refusal=None)
END = (_chunk([], COUNTED), DONE)


def begins(index: int, call_id: str, name: str, arguments: str = "") -> Any:
    return {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def continue_call(index: int, arguments: str) -> Any:
    return {"index": index, "function": {"arguments": arguments}}


CHAT: dict[str, list[bytes]] = {
    "text": [BEGIN, chunk(content="Hel"), chunk(content="lo"), chunk("stop"), *END],
    "text and end in one": [chunk("stop", content="Hello"), *END],
    "unicode": [BEGIN, chunk(content="grüße 🎈"), chunk(content="日本\u2028\0"), chunk("stop"), *END],
    "nothing": [BEGIN, chunk("stop"), *END],
    "a refusal": [chunk(role="assistant", refusal="I will "), chunk(refusal="not."), chunk("stop"), *END],
    "the token limit": [BEGIN, chunk(content="half"), chunk("length"), *END],
    "the content filter": [BEGIN, chunk(content="half"), chunk("content_filter"), *END],
    "an unknown reason": [BEGIN, chunk(content="x"), chunk("flux_capacitor"), *END],
    "a call": [
        chunk(role="assistant", content=None, tool_calls=[begins(0, "call_1", "add")]),
        chunk(tool_calls=[continue_call(0, '{"a"')]),
        chunk(tool_calls=[continue_call(0, ":1}")]),
        chunk("tool_calls"),
        *END,
    ],
    "a call at once": [chunk("tool_calls", tool_calls=[begins(0, "call_1", "add", '{"a":1}')]), *END],
    "a call without arguments": [chunk(tool_calls=[begins(0, "call_1", "now")]), chunk("tool_calls"), *END],
    "text and a call": [
        BEGIN,
        chunk(content="Let me see."),
        chunk(tool_calls=[begins(0, "call_1", "add", '{"a":')]),
        chunk(tool_calls=[continue_call(0, "1}")]),
        chunk("tool_calls"),
        *END,
    ],
    "parallel calls": [
        chunk(tool_calls=[begins(0, "call_1", "add")]),
        chunk(tool_calls=[continue_call(0, '{"a":1}')]),
        chunk(tool_calls=[begins(1, "call_2", "add")]),
        chunk(tool_calls=[continue_call(1, '{"a":2}')]),
        chunk("tool_calls"),
        *END,
    ],
    "parallel calls whose pieces alternate": [
        chunk(tool_calls=[begins(0, "call_1", "add"), begins(1, "call_2", "now")]),
        chunk(tool_calls=[continue_call(1, '{"b"'), continue_call(0, '{"a"')]),
        chunk(tool_calls=[continue_call(0, ":1}"), continue_call(1, ":2}")]),
        chunk("tool_calls"),
        *END,
    ],
    "no choices at first": [_chunk([], None), BEGIN, chunk(content="x"), chunk("stop"), *END],
    "counts in the last chunk": [BEGIN, chunk(content="x"), chunk("stop", COUNTED), DONE],
    "comments": [b": hello\n\n", BEGIN, b": ping\n\n", chunk(content="x"), chunk("stop"), b":\n\n", *END],
    "unknown fields": [
        BEGIN,
        chunk(content="x", audio={"id": 1}, annotations=[], reasoning_content="hm"),
        chunk("stop"),
        *END,
    ],
    "a large call": [
        chunk(tool_calls=[begins(0, "call_1", "add", '{"a":"')]),
        *[chunk(tool_calls=[continue_call(0, "x" * 10_000)])] * 20,
        chunk(tool_calls=[continue_call(0, '"}')]),
        chunk("tool_calls"),
        *END,
    ],
}

# ── Streams of responses ───────────────────────────────────────────────────────────────────────────

HELLO_AGAIN, ADDED, NOW = message("Hello again"), call("call_1", "add", '{"a":1}'), call("call_2", "now", '{"b":2}')
UNKNOWN: Item = {"type": "dream", "id": "dr_1", "status": "completed", "vividness": 7}
SEALED = reasoning("So **it** is", "or not", sealed="gAAA")

RESPONSES: dict[str, list[Event | bytes]] = {
    "text": [*replied(HELLO_AGAIN, usage=usage(12, 3, 8, 2))],
    "several parts": [*replied(message("one", "two", "three"))],
    "several messages": [*replied(message("one"), message("two", id="msg_2"))],
    "unicode": [*replied(message("grüße 🎈日本\u2028\0"))],
    "nothing": [CREATED, completed_event()],
    "an empty message": [*replied(message(""))],
    "a refusal": [*replied(refusal("I will not."))],
    "text and a refusal": [
        *replied(message("x") | {"content": [*message("x")["content"], *refusal("No.")["content"]]})
    ],
    "a call": [*replied(ADDED)],
    "a call without arguments": [*replied(call("call_1", "now", ""))],
    "text and a call": [*replied(HELLO_AGAIN, ADDED)],
    "parallel calls": [*replied(ADDED, NOW)],
    "parallel calls whose pieces alternate": [
        CREATED,
        added(0, ADDED),
        added(1, NOW),
        arguments_delta('{"b"', 1),
        arguments_delta('{"a"', 0),
        arguments_delta(":2}", 1),
        arguments_delta(":1}", 0),
        done(1, NOW),
        done(0, ADDED),
        completed_event(ADDED, NOW),
    ],
    "sealed reasoning": [*replied(SEALED, HELLO_AGAIN, reasoning(sealed="gBBB", id="rs_2"), ADDED)],
    "reasoning that is shown": [*replied(reasoning(thought="hm hm"), HELLO_AGAIN)],
    "the token limit": [CREATED, *told(0, message("half")), incomplete_event(message("half", status="incomplete"))],
    "the content filter": [CREATED, incomplete_event(reason="content_filter")],
    "another limit": [CREATED, *told(0, HELLO_AGAIN), incomplete_event(HELLO_AGAIN, reason="max_messages")],
    "whole items only": [CREATED, done(0, HELLO_AGAIN), done(1, ADDED), completed_event(HELLO_AGAIN, ADDED)],
    "only at the end": [CREATED, IN_PROGRESS, completed_event(SEALED, HELLO_AGAIN, ADDED)],
    "nothing at the end": [
        CREATED,
        *told(0, HELLO_AGAIN),
        *told(1, ADDED),
        {"type": "response.completed", "response": completed_event()["response"] | {"output": None}},
    ],
    "an item that is null": [
        CREATED,
        {"type": "response.output_item.added", "output_index": 0, "item": None},
        *told(1, HELLO_AGAIN),
        completed_event(HELLO_AGAIN),
    ],
    "unknown events and items": [
        CREATED,
        {"type": "response.dreaming.delta", "output_index": 0, "delta": {"a": 1}},
        *told(0, UNKNOWN),
        *told(1, HELLO_AGAIN),
        {"type": "response.queued", "response": CREATED["response"]},
        completed_event(UNKNOWN, HELLO_AGAIN),
    ],
    "comments and [DONE]": [b": hello\n\n", *replied(HELLO_AGAIN), b": ping\n\n", DONE],
    "a large call": [
        *replied(call("call_1", "add", json.dumps({"a": "x" * 200_000})), cuts=range(0, 200_000, 10_000))
    ],
}


@pytest.mark.parametrize("name", CHAT)
async def test_both_clients_read_the_same_completion(name: str) -> None:
    await agree("chat_completions", Answer(CHAT[name]))


@pytest.mark.parametrize("name", RESPONSES)
async def test_both_clients_read_the_same_response(name: str) -> None:
    await agree("responses", Answer(wire(*RESPONSES[name])))


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
async def test_both_clients_read_the_same_for_any_split_of_the_bytes(
    mode: Mode, line_end: bytes, size: int
) -> None:
    events = CHAT["unicode"] if mode == "chat_completions" else wire(*RESPONSES["unicode"])
    raw = b"".join(events).replace(b"\\u00fc", "ü".encode()).replace(b"\\u65e5", "日".encode())
    body = raw.replace(b"\n", line_end)
    heard = await agree(mode, Answer([body[at : at + size] for at in range(0, len(body), size)]))
    assert heard.text == "grüße 🎈日本\u2028\0"


# ── Generated streams ──────────────────────────────────────────────────────────────────────────────

WORDS = st.text(max_size=20)
ARGUMENTS = st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers() | st.none(), max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from(["add", "now"]), ARGUMENTS.map(json.dumps)), max_size=3)
PLACES = st.lists(st.integers(1, 30), max_size=4)


def split(body: bytes, places: list[float]) -> list[bytes]:
    edges = sorted({0, len(body), *(int(place * len(body)) for place in places)})
    return [body[start:end] for start, end in pairwise(edges)]


def parts_of(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in pairwise(edges)]


@st.composite
def completions(draw: st.DrawFn) -> list[bytes]:
    text, calls, places = draw(WORDS), draw(CALLS), draw(PLACES)
    queues: list[list[Any]] = []
    for index, (name, arguments) in enumerate(calls):
        first, *rest = parts_of(arguments, places)
        queues.append(
            [begins(index, f"call_{index}", name, first), *(continue_call(index, piece) for piece in rest)]
        )
    fragments = [queue.pop(0) for queue in queues]
    while waiting := [queue for queue in queues if queue]:
        fragments.append(draw(st.sampled_from(waiting)).pop(0))
    said = [chunk(content=piece) for piece in parts_of(text, places)]
    finish = draw(st.sampled_from(["tool_calls" if calls else "stop", "length"]))
    return [BEGIN, *said, *(chunk(tool_calls=[one]) for one in fragments), chunk(finish), *END]


@st.composite
def replies(draw: st.DrawFn) -> list[bytes]:
    texts, calls, places = draw(st.lists(WORDS, max_size=2)), draw(CALLS), draw(PLACES)
    items = [reasoning(draw(WORDS), sealed=draw(st.none() | WORDS))] if draw(st.booleans()) else []
    items += [message(text, id=f"msg_{number}") for number, text in enumerate(texts)]
    items += [call(f"call_{number}", *named) for number, named in enumerate(calls)]
    queues = [told(index, item, places) for index, item in enumerate(items)]
    events = [queue.pop(0) for queue in queues]
    while waiting := [queue for queue in queues if queue]:
        events.append(draw(st.sampled_from(waiting)).pop(0))
    end = draw(st.sampled_from([completed_event, incomplete_event]))
    return wire(CREATED, IN_PROGRESS, *events, end(*items))


CUTS = st.lists(st.floats(0, 1, exclude_max=True), max_size=6)


@settings(max_examples=25, deadline=None)
@given(completions(), CUTS)
async def test_both_clients_read_the_same_completion_of_any_stream(stream: list[bytes], cuts: list[float]) -> None:
    await agree("chat_completions", Answer(split(b"".join(stream), cuts)))


@settings(max_examples=25, deadline=None)
@given(replies(), CUTS)
async def test_both_clients_read_the_same_response_of_any_stream(stream: list[bytes], cuts: list[float]) -> None:
    await agree("responses", Answer(split(b"".join(stream), cuts)))


@settings(deadline=None)
@given(completions() | replies(), st.floats(0, 1, exclude_max=True))
async def test_a_stream_that_ends_anywhere_is_never_a_reply(stream: list[bytes], place: float) -> None:
    """Before the end has been said, there is nothing that Treadle would act on."""
    mode: Mode = "responses" if b"response.created" in stream[0] else "chat_completions"
    last = stream[-1] if mode == "responses" else b"".join(stream[-3:])  # what says that the reply is whole
    body = b"".join(stream)
    stump = body[: int(place * (len(body) - len(last)))]

    async def run() -> Completed | Failed:
        async with FakeEndpoint(Answer([stump] if stump else [])) as server:
            return await treadle_hears(mode, server.url)

    malformed(await run())


# ── Where the SDK lets a fault pass ────────────────────────────────────────────────────────────────


CUT = '{"path": "/tmp/x", "content": "rm'


async def test_a_completion_without_its_end_fails_here_and_passes_there() -> None:
    sdk, ours = await hear("chat_completions", Answer([BEGIN, chunk(content="half an answer")]))
    assert (sdk.choices[0].message.content, sdk.choices[0].finish_reason) == ("half an answer", None)
    assert "ended without saying why" in malformed(ours).message


async def test_cut_arguments_of_a_completion_fail_here_and_pass_there() -> None:
    cut_off = [chunk(tool_calls=[begins(0, "call_1", "write", CUT)]), chunk("tool_calls"), *END]
    sdk, ours = await hear("chat_completions", Answer(cut_off))
    assert sdk.choices[0].finish_reason == "tool_calls"
    assert sdk.choices[0].message.tool_calls[0].function.arguments == CUT
    assert "(write) has arguments that are not a JSON object" in malformed(ours).message


async def test_a_response_without_its_end_fails_here_and_passes_there() -> None:
    """Only a request for the final response fails there; following the events does not."""
    sdk, ours = await hear("responses", Answer(wire(CREATED, *told(0, HELLO_AGAIN), *told(1, ADDED))))
    assert sdk is None
    assert "ended without its last event" in malformed(ours).message


async def test_cut_arguments_of_a_response_fail_here_and_pass_there() -> None:
    sdk, ours = await hear("responses", Answer(wire(*replied(call("call_1", "write", CUT)))))
    assert (sdk.status, sdk.output[0].arguments) == ("completed", CUT)
    assert "(write) has arguments that are not a JSON object" in malformed(ours).message


async def test_cut_arguments_with_an_empty_final_item_fail_here_and_pass_there() -> None:
    item = call("call_1", "write", "{}")
    events = [CREATED, added(0, item), arguments_delta(CUT), done(0, item), completed_event(item)]
    sdk, ours = await hear("responses", Answer(wire(*events)))
    assert (sdk.status, sdk.output[0].arguments) == ("completed", "{}")
    assert "(write) has arguments that are not a JSON object" in malformed(ours).message


@pytest.mark.parametrize(
    "error",
    [
        failed_event("The server had an error.", "server_error"),
        {"type": "error", "code": "server_error", "message": "The server had an error.", "param": None},
    ],
)
async def test_an_error_in_a_response_fails_here_and_is_a_plain_event_there(error: Event) -> None:
    begun = [CREATED, *told(0, message("so far"))]
    sdk, ours = await hear("responses", Answer(wire(*begun, error)))
    assert sdk is None
    assert isinstance(ours, Failed)
    assert (ours.kind, ours.retryable) == ("server", True)


@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
async def test_an_error_body_is_an_error_on_both_sides(mode: Mode) -> None:
    from openai import APIError

    begun = [BEGIN] if mode == "chat_completions" else wire(CREATED, text_delta("so far"))[:1]
    error = b'data: {"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}\n\n'
    sdk, ours = await hear(mode, Answer([*begun, error]))
    assert isinstance(sdk, APIError)
    assert isinstance(ours, Failed)
    assert ours.kind == "rate_limited"


@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
async def test_a_cut_body_is_an_error_on_both_sides(mode: Mode) -> None:
    from openai import APIConnectionError

    begun = [BEGIN, chunk(content="half")] if mode == "chat_completions" else wire(CREATED, *told(0, HELLO_AGAIN))
    sdk, ours = await hear(mode, Answer(begun, ending="cut"))
    assert isinstance(sdk, APIConnectionError)
    assert "broke off in the middle" in malformed(ours).message


# ── What the SDK has no types for ──────────────────────────────────────────────────────────────────


def test_both_clients_read_content_in_lists() -> None:
    """So some servers send it, reasoning among it."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}
    stream = [
        chunk(role="assistant", content=[thought]),
        chunk(content=[{"type": "thinking", "thinking": "!"}, {"type": "text", "text": "Hel"}]),
        chunk(content=[{"type": "text", "text": "l"}, {"type": "reference", "reference_ids": [1]}]),
        chunk("stop", content="o"),
    ]
    assert chat.completed(*stream, *END).parts == (Thinking("hm!", "fake", "m-1"), Text("Hello"))


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


@cache
def types(mode: Mode) -> Any:
    """The SDK's own types of a request. They must outlive what is read with them."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
    from pydantic import TypeAdapter

    return TypeAdapter[Any](
        {"chat_completions": CompletionCreateParamsStreaming, "responses": ResponseCreateParamsStreaming}[mode]
    )


def validate_officially(mode: Mode, body: Any) -> Any:
    """The body as the SDK's own types read it: without what they do not know."""
    return _read(types(mode).validate_python(body))


def _read(value: Any) -> Any:
    """Plain values; what is to be iterated over is validated only now."""
    if isinstance(value, dict):
        return {name: _read(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType] -- any JSON
    return value if isinstance(value, str | int | float | None) else [_read(one) for one in value]


def encode_body(mode: Mode, request: ModelRequest) -> Any:
    encode = {"chat_completions": chat_completions.encode_request, "responses": responses.encode_request}[mode]
    return json.loads(encode(request))


THOUGHT = Thinking("hm", "fake", "m-1", sealed="gAAA", item_id="rs_1")
TURNS = [
    Message("user", (Text("look"), Image("image/png", "QUJD"))),
    Message("assistant", (THOUGHT, Text("ok"), ToolUse("c1", "add", '{"a":1}'), ToolUse("c2", "add", ""))),
    Message("tool", (ToolResult("c1", "1"), ToolResult("c2", "no", is_error=True))),
    Message("assistant", (ToolUse("an id: no server takes it", "add", "{}"),)),
    Message("tool", (ToolResult("an id: no server takes it", ""),)),
    Message("assistant", (Text("one"), Text("two"))),
    user("thanks"),
]
FULL = ModelRequest(
    "m-1",
    Preamble("Be brief.", (ADD,)),
    Conversation(TURNS),
    ModelSettings(max_tokens=100, temperature=0.5, reasoning="high"),
    "none",
    provider="fake",
    profile=Profile(sealed_reasoning=True),
)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(HELLO, id="a greeting"),
        pytest.param(FULL, id="everything"),
        pytest.param(replace(FULL, plain=True), id="everything, plain"),
        pytest.param(replace(HELLO, preamble=Preamble("", ())), id="bare"),
        pytest.param(replace(HELLO, conversation=Conversation()), id="empty"),
    ],
)
@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
def test_the_official_types_accept_our_requests(mode: Mode, request_: ModelRequest) -> None:
    body = encode_body(mode, request_)
    assert validate_officially(mode, body) == body


@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
def test_invented_names_are_sent_back_sanitized(mode: Mode) -> None:
    odd, long = "an id: no server takes it", "x" * 65
    uses = (ToolUse(odd, "functions.add", ""), ToolUse("", "", "{}"), ToolUse(long, "add", "{}"))
    results = tuple(ToolResult(use.call_id, "1") for use in uses)
    talk = Conversation([user("x"), Message("assistant", uses), Message("tool", results)])
    body = encode_body(mode, replace(HELLO, conversation=talk))
    if mode == "chat_completions":
        [_, _, said, *told_back] = body["messages"]
        asked = [(use["id"], use["function"]["name"]) for use in said["tool_calls"]]
        answered = [one["tool_call_id"] for one in told_back]
        assert said["tool_calls"][0]["function"]["arguments"] == "{}"
    else:
        [_, *rest] = body["input"]
        asked = [(use["call_id"], use["name"]) for use in rest[:3]]
        answered = [one["call_id"] for one in rest[3:]]
        assert rest[0]["arguments"] == "{}"
    assert answered == [call_id for call_id, _ in asked]
    assert len(set(answered)) == 3
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", word) for pair in asked for word in pair)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"flux": 1}, id="an unknown field"),
        pytest.param({"temperature": "warm"}, id="a wrong value"),
        pytest.param({"tools": [{"type": "function"}]}, id="a tool without a name"),
        pytest.param({"messages": [{"role": "ghost"}], "input": [{"role": "ghost"}]}, id="a wrong message"),
    ],
)
@pytest.mark.parametrize("mode", ["chat_completions", "responses"])
def test_the_official_types_refuse_invalid_requests(mode: Mode, change: dict[str, Any]) -> None:
    from pydantic import ValidationError

    body = encode_body(mode, FULL) | change
    try:
        noticed = validate_officially(mode, body) != body
    except ValidationError:
        noticed = True
    assert noticed
