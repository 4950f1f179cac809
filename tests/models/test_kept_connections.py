"""A connection that is kept for the next call may be dropped by the server at any moment. Then the call is made
once more, at once, if nothing of an answer had come."""

import asyncio
import struct
from socket import SO_LINGER, SOL_SOCKET

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint, Raw, says
from tests.models.chat import HELLO, Exchange, collect, converse, endpoint
from tests.patience import HANG_SECONDS
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Text, user
from treadle.domain.providers import Timeouts
from treadle.models.formats.chat_completions import FORMAT, encode_request
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble

DROPPED = Raw()
LARGE = ModelRequest("m", Preamble("", ()), Conversation([user("x" * 3_000_000)]), ModelSettings())


def list_answers(exchange: Exchange) -> list[str]:
    """Return the text of each reply; nothing for a failed one."""
    ends = [reply[-1] for reply in exchange.replies]
    first = [end.parts[0] if isinstance(end, Completed) else None for end in ends]
    return [part.text if isinstance(part, Text) else "" for part in first]


@pytest.mark.parametrize("request_", [HELLO, LARGE], ids=["small", "large"])
def test_a_dropped_pooled_connection_is_retried_silently(request_: ModelRequest) -> None:
    exchange = converse(says("a"), DROPPED, says("b"), says("c"), requests=[HELLO, request_, HELLO])
    assert list_answers(exchange) == ["a", "b", "c"]
    assert [one.body for one in exchange.requests[1:3]] == [encode_request(request_)] * 2
    assert exchange.connections == 2


def test_a_new_connection_that_is_dropped_is_a_failure() -> None:
    exchange = converse(DROPPED)
    assert list_answers(exchange) == [""]
    assert len(exchange.requests) == 1


def test_a_dropped_connection_is_retried_only_once() -> None:
    exchange = converse(says("a"), DROPPED, DROPPED, requests=[HELLO] * 2)
    [end] = exchange.replies[1]
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable) == ("unreachable", True)
    assert "the connection was dropped before an answer came" in end.message
    assert len(exchange.requests) == 3


async def test_a_dropped_connection_is_retried_only_once_on_another_kept_connection() -> None:
    connections = Connections()
    async with FakeEndpoint(says("a"), says("b"), DROPPED, DROPPED) as server:
        model = ModelClient(FORMAT, endpoint(server.url), connections)
        await asyncio.gather(collect(model), collect(model))
        assert server.connections == 2
        [end] = await collect(model)
        assert isinstance(end, Failed)
        assert (server.connections, len(server.requests)) == (2, 4)
        await connections.close()


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
def test_a_started_response_is_not_requested_again(begun: bytes) -> None:
    exchange = converse(says("a"), Raw(begun), requests=[HELLO] * 2)
    assert list_answers(exchange) == ["a", ""]
    assert len(exchange.requests) == 2


def test_a_reply_that_breaks_off_on_a_pooled_connection_is_not_retried() -> None:
    exchange = converse(says("a"), Answer([b"data: "], ending="cut"), requests=[HELLO] * 2)
    assert list_answers(exchange) == ["a", ""]
    assert len(exchange.requests) == 2


async def test_a_reset_of_a_kept_connection_is_retried() -> None:
    """The request meets a socket that the server has closed in the meantime."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        kept = len(asked) == 1
        body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        if not kept:
            writer.close()
            return
        await reader.readuntil(b"\r\n\r\n")  # the next request; the rest of it meets a reset
        asked.append(b"reset")
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    connections = Connections()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(HANG_SECONDS):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        model = ModelClient(FORMAT, endpoint(url), connections)
        for _ in range(2):
            [*_, end] = await collect(model)
            assert isinstance(end, Completed), end
        await connections.close()
    assert [one[:4] for one in asked] == [b"POST", b"rese", b"POST"]


async def test_both_attempts_share_one_limit() -> None:
    """The time that a call may take does not begin again."""

    connections = Connections()
    async with FakeEndpoint(says("a"), DROPPED, Answer(ending="hang")) as server:
        model = ModelClient(FORMAT, endpoint(server.url, Timeouts(first_byte=1.0)), connections)
        await collect(model)
        [end] = await collect(model)
        assert isinstance(end, Failed)
        assert (end.kind, len(server.requests)) == ("timeout", 3)
        await connections.close()
