"""A conversation with the chat_completions adapter over a real server on loopback."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Request
from tests.patience import HANG_SECONDS
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import user
from treadle.domain.providers import Timeouts
from treadle.domain.tools import ToolSpec
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing, ProviderKey
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Conversation, Delta, Failed, ModelRequest, Preamble

ModelEvent = Delta | Completed | Failed

KEY = "sk-very-secret-1234"
PATIENCE = Timeouts(10 * HANG_SECONDS, 10 * HANG_SECONDS, 10 * HANG_SECONDS)
"""Longer than any test waits: what a test sees is never one of these timeouts."""
ADD = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
HELLO = ModelRequest(
    "m-1", Preamble("Be brief.", (ADD,)), Conversation([user("hello")]), ModelSettings(), provider="fake"
)


class Exchange(Struct):
    replies: list[list[ModelEvent]]
    requests: list[Request]
    connections: int


def endpoint(
    url: str, timeouts: Timeouts = PATIENCE, api_key: str | None = KEY, headers: Mapping[str, str] | None = None
) -> Endpoint:
    return Endpoint(
        provider="fake",
        url=f"{url}/chat/completions",
        keys=KeyRing([ProviderKey(api_key, "the variable FAKE_API_KEY")] if api_key else ()),
        key_setting="the variable FAKE_API_KEY",
        headers=headers or {},
        timeouts=timeouts,
    )


async def collect(model: ModelClient, request: ModelRequest = HELLO) -> list[ModelEvent]:
    """Return everything that was shown, and the end."""
    events: list[ModelEvent] = []
    events.append(await model.reply(request, events.append))
    return events


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
    assert not any(isinstance(event, Completed | Failed) for event in before)
    assert KEY not in last.message
    assert "\n" not in last.message
    return last


def broken(*pieces: bytes) -> Failed:
    return failed(Answer(pieces))
