"""Connections to providers: a slow reader loses no data, and reading costs a fast reader nothing."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, FakeEndpoint, delta
from tests.models.chat import HELLO
from tests.patience import HANG_SECONDS
from treadle.domain.providers import Timeouts
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.http import request_sender
from treadle.models.http.client import ModelClient
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.response_reader import ChunkStream, ResponseReceiver
from treadle.models.http.transport import Connections, HttpCall, PreparedPost
from treadle.ports.model import Completed

PIECES = [b"%07d\n" % number * 64 for number in range(8000)]


async def read_all(url: str, pause: Callable[[], Any]) -> bytes:
    connections = Connections()
    call = HttpCall(PreparedPost(Endpoint(provider="fake", url=f"{url}/chat/completions"), connections), "m")
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


@pytest.fixture(params=["here", "by aiohttp"])
def reply_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where replies are: as always, and as with a version of aiohttp that was not tried."""
    if request.param == "by aiohttp":
        monkeypatch.setattr(request_sender, "TESTED_AIOHTTP_VERSIONS", ())


@pytest.mark.usefixtures("reply_parser")
@pytest.mark.parametrize("slow", [False, True])
def test_a_slow_reader_gets_every_byte(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MB are more than the buffer holds, so that the connection is paused and resumed."""
    paused = 0

    def count(of: type, name: str) -> None:
        original = getattr(of, name)

        def counted(self: object) -> None:
            nonlocal paused
            paused += 1
            original(self)

        monkeypatch.setattr(of, name, counted)

    count(ResponseReceiver, "pause_reading")
    count(ChunkStream, "_pause")
    naps = iter([0.5])  # long enough, also on a busy machine, for more to come than the buffer holds

    async def run() -> None:
        async with FakeEndpoint(Answer(PIECES)) as server:
            body = await read_all(server.url, (lambda: asyncio.sleep(next(naps, 0.0))) if slow else no_pause)
        assert body == b"".join(PIECES)

    asyncio.run(run())
    assert paused if slow else True


async def test_pieces_that_were_read_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp runs its parser over nothing for each piece that is read; see `ResponseReceiver`."""
    monkeypatch.setattr(request_sender, "TESTED_AIOHTTP_VERSIONS", ())
    empty = 0
    data_received = ResponseReceiver.data_received

    def count(self: ResponseReceiver, data: bytes) -> None:
        nonlocal empty
        empty += not data
        data_received(self, data)

    monkeypatch.setattr(ResponseReceiver, "data_received", count)

    async with FakeEndpoint(Answer([b"x" * 20] * 500)) as server:
        assert len(await read_all(server.url, no_pause)) == 10_000
    assert empty == 0


async def silence(first_byte_after: float, show: Callable[[], None] = lambda: None) -> tuple[float, Any]:
    """How long after the first byte the silence that follows it was noticed, and the end."""

    connections, heard = Connections(), list[float]()

    def hear(_: Any) -> None:
        heard.append(time.monotonic())
        show()

    async with FakeEndpoint(Answer([PAUSE, delta(content="x")], ending="hang")) as server:
        limits = Timeouts(first_byte=10 * HANG_SECONDS, between_bytes=0.1, whole_call=10 * HANG_SECONDS)
        model = ModelClient(FORMAT, Endpoint(provider="fake", url=f"{server.url}/x", timeouts=limits), connections)
        asyncio.get_running_loop().call_later(first_byte_after, server.go_on.set)
        end = await model.reply(HELLO, hear)
    await connections.close()
    return time.monotonic() - heard[0], end


async def test_silence_is_noticed_in_time_after_a_late_first_byte() -> None:
    noticed, end = await silence(first_byte_after=0.3)
    assert "fell silent" in end.message
    assert noticed < HANG_SECONDS, "long before the limit for the first byte"


async def test_a_slow_reader_is_not_a_silent_provider() -> None:
    connections = Connections()
    async with FakeEndpoint(
        Answer([delta(content="a"), PAUSE, delta(content="b"), delta(finish="stop"), DONE])
    ) as server:
        limits = Timeouts(between_bytes=0.5)
        model = ModelClient(FORMAT, Endpoint(provider="fake", url=f"{server.url}/x", timeouts=limits), connections)

        def slow(_: Any) -> None:
            server.go_on.set()
            time.sleep(1.1)  # the time under test

        assert isinstance(await model.reply(HELLO, slow), Completed)
    await connections.close()
