"""A scriptable HTTP server on loopback: each request gets the next behaviour of the script, byte for byte.

It speaks raw HTTP on purpose, so that it can misbehave in ways that no server library allows."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

Framing = Literal["chunked", "length", "close"]
Ending = Literal["clean", "cut", "hang"]


PAUSE = b""
"""As a piece of a body: wait until the test sets `FakeEndpoint.go_on`."""


class Answer(NamedTuple):
    """A status, headers, and a body that is written piece by piece."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = {"Content-Type": "text/event-stream"}
    framing: Framing = "chunked"
    ending: Ending = "clean"
    """cut: the connection is dropped before the body is whole. hang: nothing more comes, for ever."""


class Raw(NamedTuple):
    """These bytes instead of HTTP, and then the end."""

    data: bytes = b""


class Silence(NamedTuple):
    """The request is read and never answered."""


Behaviour = Answer | Raw | Silence


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Policy = Callable[[Request], Behaviour]


class FakeEndpoint:
    """`async with FakeEndpoint(behaviour, ...) as server`. A request beyond the script gets a 599, or what a policy
    makes of it."""

    def __init__(self, *script: Behaviour, policy: Policy | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.asked = asyncio.Event()
        """A request has come in."""
        self.left = asyncio.Event()
        """The client has closed a connection."""
        self.go_on = asyncio.Event()
        self._script = list(script)
        self._policy = policy
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self._script, f"{len(self._script)} behaviours of the script were never asked for"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read_request(reader):
                self.requests.append(request)
                self.asked.set()
                if not await self._perform(self._next(request), reader, writer):
                    break
        except ConnectionError:
            pass
        finally:
            self.left.set()
            writer.close()

    def _next(self, request: Request) -> Behaviour:
        if self._script:
            return self._script.pop(0)
        return Answer([b"the script is at its end"], 599) if self._policy is None else self._policy(request)

    async def _perform(
        self, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send one answer. Return whether the connection can serve another request."""
        match behaviour:
            case Raw(data):
                writer.write(data)
                await writer.drain()
                return False
            case Silence():
                await reader.read()  # nothing, until the client leaves
                return False
            case Answer():
                await self._write(behaviour, writer)
                if behaviour.ending == "hang":
                    await reader.read()
                return behaviour.ending == "clean" and behaviour.framing != "close"

    async def _write(self, answer: Answer, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(answer))
        for piece in answer.pieces:
            if piece == PAUSE:
                await self.go_on.wait()
            else:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)
                await writer.drain()
                await asyncio.sleep(0)  # the client, in the same loop, must receive this piece separately
        if answer.framing == "chunked" and answer.ending == "clean":
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def _head(answer: Answer) -> bytes:
    headers = dict(answer.headers)
    match answer.framing:
        case "chunked":
            headers["Transfer-Encoding"] = "chunked"
        case "length":
            extra = 1 if answer.ending != "clean" else 0
            headers["Content-Length"] = str(sum(map(len, answer.pieces)) + extra)
        case "close":
            headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer.status} Whatever\r\n{lines}\r\n".encode()


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


# ── Bodies in the chat_completions format ──────────────────────────────────────────────────────────

DONE = b"data: [DONE]\n\n"


def event(payload: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk with this delta."""
    return event({"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def fragment(index: int | None = None, id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    """Return a fragment of a tool call, without the fields that are None."""
    function = {"name": name, "arguments": arguments}
    fields = {"index": index, "id": id, "function": {k: v for k, v in function.items() if v is not None}}
    return {key: value for key, value in fields.items() if value is not None}


def usage(prompt: int = 10, completion: int = 5, cached: int = 0) -> bytes:
    counted = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counted | {"prompt_tokens_details": {"cached_tokens": cached}}})


def says(text: str) -> Answer:
    """Return a complete text answer."""
    return Answer([delta(role="assistant", content=""), delta(content=text), delta(finish="stop"), usage(), DONE])


def calls(*fragments: Any) -> Answer:
    """Return an answer with these tool calls."""
    return Answer([delta(role="assistant", tool_calls=list(fragments)), delta(finish="tool_calls"), usage(), DONE])


def refuses(status: int, body: Any, **headers: str) -> Answer:
    """Return an error answer. Names of headers are written with underscores."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([data], status, {"Content-Type": "application/json"} | named, framing="length")
