"""A connection to a provider: a slow reader loses nothing, and a quick one pays nothing for reading."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint
from treadle.models.endpoint import Endpoint
from treadle.models.transport import Call, Connections, Post, Protocol

PIECES = [b"%07d\n" % number * 64 for number in range(8000)]


async def read_all(url: str, pause: Callable[[], Any]) -> bytes:
    connections = Connections()
    call = Call(Post(Endpoint(provider="fake", url=f"{url}/chat/completions"), connections), "m")
    body = bytearray()
    try:
        await call.open(b"{}")
        while piece := await call.read():
            body += piece
            await pause()
    finally:
        call.close()
        await connections.close()
    return bytes(body)


async def no_pause() -> None:
    pass


@pytest.mark.parametrize("slow", [False, True])
def test_a_slow_reader_gets_every_byte(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MB are more than the buffer holds, so that the connection is paused and resumed."""
    paused = 0
    pause_reading = Protocol.pause_reading

    def count(self: Protocol) -> None:
        nonlocal paused
        paused += 1
        pause_reading(self)

    monkeypatch.setattr(Protocol, "pause_reading", count)

    async def run() -> None:
        async with FakeEndpoint(Answer(PIECES)) as server:
            body = await read_all(server.url, (lambda: asyncio.sleep(0.02)) if slow else no_pause)
        assert body == b"".join(PIECES)

    asyncio.run(run())
    assert paused if slow else True


def test_pieces_that_were_read_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp runs its parser over nothing for each piece that is read; see `Protocol`."""
    empty = 0
    data_received = Protocol.data_received

    def count(self: Protocol, data: bytes) -> None:
        nonlocal empty
        empty += not data
        data_received(self, data)

    monkeypatch.setattr(Protocol, "data_received", count)

    async def run() -> None:
        async with FakeEndpoint(Answer([b"x" * 20] * 500)) as server:
            assert len(await read_all(server.url, no_pause)) == 10_000

    asyncio.run(run())
    assert empty == 0
