"""Streams in the anthropic_messages format, and a conversation with its adapter over a real server on loopback."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint
from tests.models.chat import HELLO, KEY, PATIENCE, Exchange, ModelEvent, collect
from treadle.domain.providers import Timeouts
from treadle.models.formats.anthropic_messages import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Failed, ModelRequest

# ── Events ─────────────────────────────────────────────────────────────────────────────────────────


def event(kind: str, **fields: Any) -> bytes:
    """Return one server-sent event with its type in the data."""
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


PING = event("ping")
STOP = event("message_stop")


def begins(tokens: int | None = 10, **counts: Any) -> bytes:
    """Return the first event of a reply. Without tokens it has no counts."""
    usage = {} if tokens is None else {"usage": {"input_tokens": tokens, "output_tokens": 1, **counts}}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    return event("message_start", message=message | {"stop_reason": None, "stop_sequence": None, **usage})


def ends(stop: str | None = "end_turn", tokens: int | None = 5, details: Any = None, **counts: Any) -> bytes:
    """Return the event with the stop reason and the token count."""
    delta = {"stop_reason": stop, "stop_sequence": None, "stop_details": details}
    usage = {} if tokens is None else {"usage": {"output_tokens": tokens, **counts}}
    return event("message_delta", delta=delta, **usage)


def opens(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def more(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def closes(index: int) -> bytes:
    return event("content_block_stop", index=index)


# ── Blocks ─────────────────────────────────────────────────────────────────────────────────────────


def text(index: int, *pieces: str) -> list[bytes]:
    written = [more(index, "text_delta", text=piece) for piece in pieces]
    return [opens(index, "text", text=""), *written, closes(index)]


def thinking(index: int, *pieces: str, signature: str | None = "c2ln") -> list[bytes]:
    written = [more(index, "thinking_delta", thinking=piece) for piece in pieces]
    signed = [] if signature is None else [more(index, "signature_delta", signature=signature)]
    return [opens(index, "thinking", thinking="", signature=""), *written, *signed, closes(index)]


def redacted(index: int, data: str) -> list[bytes]:
    return [opens(index, "redacted_thinking", data=data), closes(index)]


def asks(index: int, id: str, name: str, *pieces: str) -> list[bytes]:
    """Return the events of a tool call with its arguments in pieces."""
    written = [more(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return [opens(index, "tool_use", id=id, name=name, input={}), *written, closes(index)]


def stream(*blocks: Iterable[bytes], stop: str | None = "end_turn", details: Any = None) -> list[bytes]:
    """Return the events of a complete reply."""
    return [begins(), *chain.from_iterable(blocks), ends(stop, details=details), STOP]


def says(words: str) -> Answer:
    """Return a complete text answer."""
    return Answer(stream(text(0, words)))


def error(kind: str, message: str, **more_of_it: Any) -> Any:
    """Return the body of an error."""
    return {"type": "error", "error": {"type": kind, "message": message, **more_of_it}, "request_id": "req_1"}


# ── Conversations ──────────────────────────────────────────────────────────────────────────────────


def endpoint(
    url: str, timeouts: Timeouts = PATIENCE, api_key: str | None = KEY, headers: Mapping[str, str] | None = None
) -> Endpoint:
    return Endpoint(
        provider="fake",
        url=f"{url}/messages",
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


def completed(*pieces: bytes) -> Completed:
    last = events_of(Answer(pieces))[-1]
    assert isinstance(last, Completed), last
    return last


def failed(behaviour: Behaviour, **settings: Any) -> Failed:
    *before, last = events_of(behaviour, **settings)
    assert isinstance(last, Failed), last
    assert not any(isinstance(earlier, Completed | Failed) for earlier in before)
    assert KEY not in last.message
    assert "\n" not in last.message
    return last


def broken(*pieces: bytes) -> Failed:
    return failed(Answer(pieces))
