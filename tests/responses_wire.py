"""Streams in the `responses` format as OpenAI sends them, and its adapter over a real server on loopback."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, refuses
from tests.models.chat import HELLO, KEY, PATIENCE, Exchange, ModelEvent, collect
from treadle.domain.providers import Timeouts
from treadle.models.formats.responses import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Failed, Model, ModelRequest
from treadle.testing.conformance.model import (
    ProviderAction,
    ProviderBreak,
    ProviderCalls,
    ProviderRefusal,
    ProviderSilence,
    ProviderText,
)

Item = dict[str, Any]
Event = dict[str, Any]

# ── Items ──────────────────────────────────────────────────────────────────────────────────────────


def message(*texts: str, id: str = "msg_1", status: str = "completed") -> Item:
    content: list[Item] = [
        {"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts
    ]
    return {"type": "message", "id": id, "role": "assistant", "status": status, "content": content}


def refusal(text: str, id: str = "msg_1") -> Item:
    return message(id=id) | {"content": [{"type": "refusal", "refusal": text}]}


def call(
    call_id: str = "call_1", name: str = "add", arguments: str = "{}", id: str = "", status: str = "completed"
) -> Item:
    named = {"type": "function_call", "id": id or f"fc_{call_id}", "call_id": call_id, "name": name}
    return named | {"arguments": arguments, "status": status}


def reasoning(
    *summary: str, sealed: str | None = None, id: str = "rs_1", thought: str = "", status: str | None = None
) -> Item:
    item: Item = {"type": "reasoning", "id": id}
    item["summary"] = [{"type": "summary_text", "text": text} for text in summary]
    if thought:
        item["content"] = [{"type": "reasoning_text", "text": thought}]
    if sealed is not None:
        item["encrypted_content"] = sealed
    return item if status is None else item | {"status": status}


# ── Events ─────────────────────────────────────────────────────────────────────────────────────────

USAGE: Mapping[str, Any] = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 15,
}


def usage(input: int = 10, output: int = 5, cached: int = 0, written: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    return {**USAGE, "input_tokens": input, "output_tokens": output, "input_tokens_details": details}


def response(status: str, output: Sequence[Item] = (), usage: Any = None, **more: Any) -> dict[str, Any]:
    """Return a response object with all fields of the format."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1750000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "model": "m-1",
        "output": list(output),
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": "add", "parameters": {}, "strict": False}],
        "usage": usage,
        **more,
    }


CREATED: Event = {"type": "response.created", "response": response("in_progress")}
IN_PROGRESS: Event = {"type": "response.in_progress", "response": response("in_progress")}


def added(index: int | None, item: Item) -> Event:
    """Return the event that starts an item: with its name, and empty."""
    empty: dict[str, Item] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "reasoning": {"summary": []},
    }
    begun = item | empty.get(item["type"], {})
    begun.pop("encrypted_content", None)
    return _at(index, {"type": "response.output_item.added", "item": begun | {"status": "in_progress"}})


def done(index: int | None, item: Item) -> Event:
    return _at(index, {"type": "response.output_item.done", "item": item})


def text_delta(text: str, index: int | None = 0, part: int = 0, id: str = "msg_1") -> Event:
    fields: Event = {"item_id": id, "content_index": part, "delta": text, "logprobs": [], "obfuscation": "x8"}
    return _at(index, {"type": "response.output_text.delta"} | fields)


def arguments_delta(text: str, index: int | None = 0, id: str = "fc_1") -> Event:
    return _at(index, {"type": "response.function_call_arguments.delta", "item_id": id, "delta": text})


def _at(index: int | None, event: Event) -> Event:
    return event if index is None else event | {"output_index": index}


def told(index: int, item: Item, cuts: Iterable[int] = (3,)) -> list[Event]:
    """Return all events of one item, with its text cut at these places."""
    about = {"item_id": item["id"], "output_index": index}
    match item["type"]:
        case "function_call":
            kind = {"type": "response.function_call_arguments"}
            between = _pieces(kind | about, item["arguments"], "arguments", cuts)
        case "message":
            between = [event for n, part in enumerate(item["content"]) for event in _part(n, part, about, cuts)]
        case "reasoning":
            between = [event for n, part in enumerate(item["summary"]) for event in _summary(n, part, about, cuts)]
            for n, part in enumerate(item.get("content", ())):
                kind = {"type": "response.reasoning_text", "content_index": n}
                between += _pieces(kind | about, part["text"], "text", cuts)
        case _:
            between = []
    return [added(index, item), *between, done(index, item)]


def _part(number: int, part: Item, about: Event, cuts: Iterable[int]) -> list[Event]:
    field = "refusal" if part["type"] == "refusal" else "text"
    at = about | {"content_index": number}
    kind = "response.refusal" if field == "refusal" else "response.output_text"
    extra = {} if field == "refusal" else {"logprobs": list[Any]()}
    return [
        {"type": "response.content_part.added", "part": part | {field: ""}} | at,
        *_pieces({"type": kind} | at | extra, part[field], field, cuts),
        {"type": "response.content_part.done", "part": part} | at,
    ]


def _summary(number: int, part: Item, about: Event, cuts: Iterable[int]) -> list[Event]:
    at = about | {"summary_index": number}
    return [
        {"type": "response.reasoning_summary_part.added", "part": part | {"text": ""}} | at,
        *_pieces({"type": "response.reasoning_summary_text"} | at, part["text"], "text", cuts),
        {"type": "response.reasoning_summary_part.done", "part": part} | at,
    ]


def _pieces(kind: Event, text: str, field: str, cuts: Iterable[int]) -> list[Event]:
    """Return the text in pieces, and then as a whole."""
    deltas = [kind | {"type": f"{kind['type']}.delta", "delta": piece} for piece in cut(text, cuts)]
    return [*deltas, kind | {"type": f"{kind['type']}.done", field: text}]


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    edges = sorted({0, len(text), *(place for place in cuts if place < len(text))})
    return [text[start:end] for start, end in pairwise(edges)]


def completed_event(*output: Item, usage: Any = USAGE) -> Event:
    return {"type": "response.completed", "response": response("completed", output, usage)}


def incomplete_event(*output: Item, reason: str | None = "max_output_tokens", usage: Any = USAGE) -> Event:
    details = None if reason is None else {"reason": reason}
    whole = response("incomplete", output, usage, incomplete_details=details)
    return {"type": "response.incomplete", "response": whole}


def failed_event(message: str, code: str | None, usage: Any = None) -> Event:
    error = {"code": code, "message": message}
    return {"type": "response.failed", "response": response("failed", (), usage, error=error)}


def replied(*items: Item, usage: Any = USAGE, cuts: Iterable[int] = (3,)) -> list[Event]:
    """Return a complete reply with these items."""
    between = [event for index, item in enumerate(items) for event in told(index, item, cuts)]
    return [CREATED, IN_PROGRESS, *between, completed_event(*items, usage=usage)]


def wire(*events: Event | bytes) -> list[bytes]:
    """Return the bytes of each event, numbered. Bytes are sent unchanged."""
    return [
        one if isinstance(one, bytes) else _encoded({"sequence_number": number} | one)
        for number, one in enumerate(events)
    ]


def _encoded(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


# ── The adapter ────────────────────────────────────────────────────────────────────────────────────


def endpoint(
    url: str, timeouts: Timeouts = PATIENCE, api_key: str | None = KEY, headers: Mapping[str, str] | None = None
) -> Endpoint:
    return Endpoint(
        provider="fake",
        url=f"{url}/responses",
        keys=KeyRing([ProviderKey(api_key, "the variable FAKE_API_KEY")] if api_key else ()),
        key_setting="the variable FAKE_API_KEY",
        headers=headers or {},
        timeouts=timeouts,
    )


def converse(*script: Behaviour, requests: Sequence[ModelRequest] = (HELLO,), **settings: Any) -> Exchange:
    """Send each request in turn to a server that follows the script."""

    async def run() -> Exchange:
        connections = Connections()
        async with FakeEndpoint(*script) as server:
            try:
                model = ModelClient(FORMAT, endpoint(server.url, **settings), connections)
                replies = [await collect(model, request) for request in requests]
                return Exchange(replies, server.requests, server.connections)
            finally:
                await connections.close()

    return asyncio.run(run())


def events_of(behaviour: Behaviour, **settings: Any) -> list[ModelEvent]:
    return converse(behaviour, **settings).replies[0]


def completed(*events: Event | bytes) -> Completed:
    last = events_of(Answer(wire(*events)))[-1]
    assert isinstance(last, Completed), last
    return last


def failed(behaviour: Behaviour, **settings: Any) -> Failed:
    *before, last = events_of(behaviour, **settings)
    assert isinstance(last, Failed), last
    assert not any(isinstance(event, Completed | Failed) for event in before)
    assert KEY not in last.message
    assert "\n" not in last.message
    assert last.message.startswith("fake ")
    return last


def broken(*events: Event | bytes) -> Failed:
    return failed(Answer(wire(*events)))


# ── The conformance checks ─────────────────────────────────────────────────────────────────────────


def behaviour(scene: ProviderAction) -> Behaviour:
    match scene:
        case ProviderText(text):
            spaces = [place + 1 for place, character in enumerate(text) if character == " "]
            return Answer(wire(*replied(message(text), cuts=spaces)))
        case ProviderCalls(calls):
            items = [call(use.call_id, use.name, use.arguments) for use in calls]
            begun = [added(n, item) for n, item in enumerate(items)]
            halves = [arguments_delta(use.arguments[:3], n) for n, use in enumerate(calls)]
            halves += [arguments_delta(use.arguments[3:], n) for n, use in enumerate(calls)]
            ended = [done(n, item) for n, item in enumerate(items)]
            return Answer(wire(CREATED, *begun, *halves, *ended, completed_event(*items)))
        case ProviderRefusal():
            return refuses(500, {"error": {"message": "out of order"}})
        case ProviderBreak(text):
            return Answer(wire(CREATED, added(0, message()), text_delta(text)))
        case ProviderSilence(text):
            return Answer(wire(CREATED, added(0, message()), text_delta(text)), ending="hang")


class OverResponses:
    """The adapter over a real server on loopback."""

    @asynccontextmanager
    async def open(self, *scenes: ProviderAction) -> AsyncGenerator[Model, None]:
        connections = Connections()
        async with FakeEndpoint(*map(behaviour, scenes)) as server:
            try:
                yield ModelClient(FORMAT, endpoint(server.url), connections)
            finally:
                await connections.close()
