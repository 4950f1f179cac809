"""A fast fake of a model endpoint, in a process of its own, for the three wire formats.

The model's name decides what it does: `steps-20-tokens-16` requests the tool `lookup` until 20 results are in the
conversation and then answers with 16 tokens; `steps-20-calls-4-tokens-16` requests it four times in each step;
`tokens-2000` answers at once. Answers are encoded once and sent
whole, so that a contestant spends time on its own work and not on waiting for a socket."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from bench.dialects import DIALECTS, Dialect

TALK = 4  # text tokens streamed before each tool call
RESULT_SIZE = 2000  # a tool result shorter than this means that the contestant did not do the work

_MODEL = re.compile(rb'"model":\s*"(?:steps-(\d+)-(?:calls-(\d+)-)?)?tokens-(\d+)"')
_STREAM = re.compile(rb'"stream":\s*true')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)


class BadRequest(Exception):
    """The client sent something that this endpoint does not serve; the text says why."""


class Request(NamedTuple):
    """One request, taken from the front of the connection's buffer."""

    head: bytes
    body: bytes
    end: int  # where the next request starts


def take_request(buffer: bytearray) -> Request | int:
    """Return the first whole request in the buffer, or how long the buffer must be before another attempt is
    worthwhile."""
    head_end = buffer.find(b"\r\n\r\n")
    if head_end < 0:
        return len(buffer) + 1
    start = head_end + 4
    head = bytes(buffer[:head_end])
    if _CHUNKED.search(head):
        return _take_chunked(buffer, head, start)
    length = _LENGTH.search(head)
    end = start + (int(length[1]) if length else 0)
    return Request(head, bytes(buffer[start:end]), end) if len(buffer) >= end else end


def _take_chunked(buffer: bytearray, head: bytes, at: int) -> Request | int:
    parts: list[bytes] = []
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return len(buffer) + 1
        size = int(buffer[at:line_end].partition(b";")[0], 16)
        at = line_end + 2
        if size == 0:
            break
        if len(buffer) < at + size + 2:
            return at + size + 2
        parts.append(bytes(buffer[at : at + size]))
        at += size + 2
    while (line_end := buffer.find(b"\r\n", at)) > at:  # trailers
        at = line_end + 2
    return len(buffer) + 1 if line_end < 0 else Request(head, b"".join(parts), line_end + 2)


def answer(dialect: Dialect, body: bytes) -> bytes:
    """Return the whole response to a request."""
    model = _MODEL.search(body)
    if model is None:
        raise BadRequest("the model must be named like steps-20-tokens-16 or tokens-2000")
    if not _STREAM.search(body):
        raise BadRequest("this endpoint only streams")
    results = len(dialect.result.findall(body))
    if len(body) < results * RESULT_SIZE:
        raise BadRequest(f"{results} tool results cannot be in {len(body)} bytes")
    steps, calls, tokens = int(model[1] or 0), int(model[2] or 1), int(model[3])
    if results < steps * calls:
        return _tool_turn(dialect, range(results + 1, results + 1 + calls))
    return _final_turn(dialect, tokens)


@lru_cache(maxsize=4096)
def _tool_turn(dialect: Dialect, numbers: range) -> bytes:
    """Return a short text and a call for each number, its arguments in three fragments."""
    return _stream(dialect.tool_turn(numbers, TALK))


@lru_cache(maxsize=64)
def _final_turn(dialect: Dialect, tokens: int) -> bytes:
    return _stream(dialect.final_turn(tokens))


def _stream(events: list[bytes]) -> bytes:
    """Return a response with one HTTP chunk per server-sent event, as providers send them."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"


def _json_response(status: str, value: object) -> bytes:
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status.encode(),
        len(body),
        body,
    )


class Endpoint(asyncio.Protocol):
    """One keep-alive connection. Requests may be pipelined and are answered in order."""

    calls = 0  # model calls answered on all connections; GET /calls returns it

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._wanted = 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= self._wanted:
            request = take_request(self._buffer)
            if isinstance(request, int):
                self._wanted = request
                return
            del self._buffer[: request.end]
            self._wanted = 1
            self._transport.write(self._respond(request))

    def _respond(self, request: Request) -> bytes:
        if request.head.startswith(b"GET /calls "):
            return _json_response("200 OK", Endpoint.calls)
        dialect = DIALECTS.get(request.head.partition(b" HTTP/")[0])
        if dialect is None:
            return _json_response("404 Not Found", {"error": {"message": "no such path"}})
        try:
            response = answer(dialect, request.body)
        except BadRequest as error:
            return _json_response("400 Bad Request", {"error": {"message": str(error)}})
        Endpoint.calls += 1
        return response


async def serve() -> None:
    """Serve on a free loopback port, print that port, and run until killed."""
    server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serve_endpoint() -> Generator[str, None, None]:
    """Serve in a process of its own during the block, and yield the base URL."""
    command, root = [sys.executable, "-m", "bench.endpoint"], Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(serve())
