"""Replies in chunks are parsed here and all others by aiohttp, with the same results, on the event loop of a
library and on that of the server."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
import uvloop

from tests.patience import HANG_SECONDS
from treadle.models.http import request_sender
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.response_reader import AiohttpResponse, ChunkStream, ResponseReceiver
from treadle.models.http.transport import CallFailed, Connections, HttpCall, PreparedPost

Script = Sequence[Sequence[bytes]]
"""What is written in answer to each request, piece by piece."""

HANG_UP = b""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"6\r\ndata: \r\n1\r\na\r\nA;ext=1\r\n\n\ndata: bc\r\n0\r\n\r\n"
BODY = b"data: a\n\ndata: bc"
GOOD = HEAD + CHUNKS


LOOP_TURNS = 10
"""Turns of the event loop in which data that was written reaches the reader."""


class ScriptedServer:
    """Requests to a server that keeps to a script."""

    def __init__(self, script: Script, reads: int = -1) -> None:
        self.connections = 0
        self.bodies: list[bytes] = []
        self.answers: list[type] = []
        self._script = iter(script)
        self._reads = reads
        self._answered = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length if self._reads < 0 else min(length, self._reads))
                for piece in next(self._script):
                    if piece == HANG_UP:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                self._answered.set()
                if self._reads >= 0:
                    await asyncio.Event().wait()  # it stops reading and closes no connection
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._answered.set()
            writer.close()

    async def ask(self, requests: int, body: bytes = b"{}") -> None:
        connections = Connections()
        tasks = set[asyncio.Task[None]]()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.ensure_future(self._serve(reader, writer)))

        listening = socket.socket(proto=socket.IPPROTO_TCP)  # or asyncio would wait before it sends a second piece
        listening.bind(("127.0.0.1", 0))
        if self._reads >= 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server = await asyncio.start_server(accept, sock=listening, limit=4096)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        post = PreparedPost(Endpoint(provider="fake", url=url), connections)
        try:
            for _ in range(requests):
                await self._one(HttpCall(post, "m"), body)
        finally:
            await connections.close()
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, call: HttpCall, body: bytes) -> None:
        self._answered.clear()
        try:
            await call.open(body)
            self.answers.append(type(call._response))  # pyright: ignore[reportPrivateUsage] -- whose it is, is hidden
            read = bytearray()
            while piece := await call.read():
                read += piece
            self.bodies.append(bytes(read))
        finally:
            call.close()
        await self._answered.wait()
        for _ in range(LOOP_TURNS):  # what the server still says arrives before the next request
            await asyncio.sleep(0)


Run = Callable[[Coroutine[Any, Any, None]], None]
Ask = Callable[..., ScriptedServer]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(work, HANG_SECONDS))

    return run


@pytest.fixture
def talk(run: Run) -> Ask:
    """Return a function that sends one request for each line of a script and returns all replies."""

    def talk(script: Script, body: bytes = b"{}", reads: int = -1) -> ScriptedServer:
        talked = ScriptedServer(script, reads)
        run(talked.ask(len(script), body))
        return talked

    return talk


def test_a_reply_is_the_same_for_any_split(talk: Ask) -> None:
    cuts = range(1, len(GOOD))
    whole = talk([(GOOD[:at], GOOD[at:]) for at in cuts])
    assert set(whole.bodies) == {BODY}
    assert whole.connections == 1
    assert whole.answers == [ChunkStream if at >= len(HEAD) else AiohttpResponse for at in cuts]


def test_a_reply_is_the_same_as_aiohttp_reads_it(talk: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = talk([(GOOD,), (HEAD, CHUNKS)])
    monkeypatch.setattr(request_sender, "TESTED_AIOHTTP_VERSIONS", ())
    theirs = talk([(GOOD,), (HEAD, CHUNKS)])
    assert (ours.answers, theirs.answers) == ([ChunkStream] * 2, [AiohttpResponse] * 2)
    assert ours.bodies == theirs.bodies == [BODY] * 2


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"Encoding: chunked", b"Encoding: identity, chunked"),
        HEAD.replace(b"Content-Type", b"Content-Encoding: identity\r\nContent-Type"),
        HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(BODY)),
    ],
)
def test_unusual_cases_are_left_to_aiohttp(head: bytes, talk: Ask) -> None:
    answered = talk([(head + (BODY if b"Length" in head else CHUNKS),)])
    assert (answered.answers, answered.bodies) == ([AiohttpResponse], [BODY])


@pytest.mark.parametrize(
    "answer",
    [
        (GOOD + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",),
        (GOOD + b"H",),
        (GOOD + b"nonsense",),
        (GOOD, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"),
        (GOOD.replace(b"Transfer", b"Connection: close\r\nTransfer"),),
    ],
    ids=["another answer", "the start of one", "nonsense", "one that comes later", "the last one"],
)
def test_a_connection_with_extra_data_is_not_reused(answer: Sequence[bytes], talk: Ask) -> None:
    talked = talk([answer, (GOOD,)])
    assert talked.bodies == [BODY, BODY]
    assert talked.connections == 2


def test_trailers_are_skipped(talk: Ask) -> None:
    with_trailers = GOOD[:-2] + b"X-Checksum: 1\r\n\r\n"
    talked = talk([(with_trailers,), (GOOD,)])
    assert talked.bodies == [BODY, BODY]
    assert talked.connections == 1


@pytest.mark.parametrize("broken", [b"zz\r\n", b"3\r\nabcdef", b"-1\r\n", HANG_UP])
def test_invalid_chunks_fail(broken: bytes, run: Run) -> None:
    with pytest.raises(CallFailed, match="broke off"):
        run(ScriptedServer([(HEAD + b"1\r\na\r\n", broken)]).ask(1))


@pytest.mark.parametrize("begun", [HEAD, HEAD[:-2], HEAD[:1], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na"])
def test_a_started_reply_is_not_requested_again(begun: bytes, run: Run) -> None:
    """This also holds for a pooled connection, which a server may close at any time."""
    talked = ScriptedServer([(GOOD,), (begun, HANG_UP), (GOOD,)])
    with pytest.raises(CallFailed):
        run(talked.ask(2))
    assert (talked.connections, talked.bodies) == (1, [BODY])


def test_a_connection_that_still_sends_is_not_reused(talk: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has answered before it had read everything."""
    connection_made = ResponseReceiver.connection_made

    def narrow(self: ResponseReceiver, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection_made(self, transport)

    monkeypatch.setattr(ResponseReceiver, "connection_made", narrow)
    talked = talk([(GOOD,), (GOOD,)], body=b"x" * request_sender.MAX_SINGLE_WRITE_BYTES, reads=1000)
    assert talked.bodies == [BODY, BODY]
    assert talked.connections == 2
