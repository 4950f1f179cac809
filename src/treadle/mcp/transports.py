"""The transports of MCP servers: a program in the sandbox on its standard input and output, or streamable HTTP.

This module imports the SDK. Import it only where a server is used."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from treadle.domain.limits import MAX_MCP_MESSAGE_BYTES, MAX_MCP_NOISE_BYTES
from treadle.mcp.messages import UNREADABLE, MessageLimits, ServerFault, find_answered_request, make_error
from treadle.ports.sandbox import Program, Programs, RunningProgram

STOP_SECONDS = 2.0
"""How long a program may take to end after its input was closed."""
CONNECT_SECONDS = 10.0


class RunningServer:
    """What a connection knows about the program or address behind it."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.exit_code: int | None = None
        self.errors = ""
        self.tools: dict[str, dict[str, Any]] = {}
        """The raw objects of the tools that were listed, by name."""
        self.ended = asyncio.Event()
        self._limits = MessageLimits()

    def receive(self, message: SessionMessage) -> SessionMessage:
        """Return a message within the limits. Raise ServerFault if the server floods the connection."""
        message = self._limits.apply(message)
        self._note_tools(message)
        return message

    def _note_tools(self, message: SessionMessage) -> None:
        """Keep the raw objects of tools. The SDK drops what its models do not know."""
        if not isinstance(message.message, types.JSONRPCResponse):
            return
        listed: Any = message.message.result.get("tools")
        for item in cast("list[Any]", listed) if isinstance(listed, list) else ():
            tool = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
            if isinstance(name := tool.get("name"), str):
                self.tools[name] = tool


# ── Programs ──


@asynccontextmanager
async def open_program(
    programs: Programs, program: Program, server: RunningServer
) -> AsyncGenerator[TransportStreams]:
    """Start a program and exchange messages with it. It is stopped at the end, with everything that it started."""
    process = await programs.start(program, MAX_MCP_MESSAGE_BYTES)
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with incoming:
            try:
                await _read_messages(process, server, incoming.send)
            except ServerFault as fault:
                server.fault = str(fault)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # the session is closed
        server.ended.set()

    async def write() -> None:
        async with outgoing:
            async for item in outgoing:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await process.write(f"{line}\n".encode())
                except OSError:
                    return  # its end is noticed where it is read

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        yield read_stream, write_stream
    finally:
        with anyio.CancelScope(shield=True):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for stream in (incoming, read_stream, write_stream, outgoing):
                stream.close()
            has_ended = server.ended.is_set()
            await process.stop(0.0 if server.fault is not None else STOP_SECONDS)
            if has_ended:
                with anyio.move_on_after(STOP_SECONDS):
                    server.exit_code = await process.wait()
            server.errors = process.errors
            server.ended.set()


async def _read_messages(process: RunningProgram, server: RunningServer, send: Callable[[Any], Any]) -> None:
    noise = 0
    while True:
        try:
            line = await process.output.readuntil()
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            raise ServerFault(f"it sent a message of more than {MAX_MCP_MESSAGE_BYTES // 2**20} MB") from None
        if not line.strip():
            noise += len(line)
        else:
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (ValueError, RecursionError):
                if (request := find_answered_request(line)) is None:
                    noise += len(line)
                else:
                    await send(SessionMessage(make_error(request)))
            else:
                await send(server.receive(SessionMessage(message)))
        if noise > MAX_MCP_NOISE_BYTES:
            raise ServerFault("it floods its standard output")


# ── HTTP ──


class _LimitedTransport(httpx2.AsyncHTTPTransport):
    """Refuses a JSON response that is too large. The SDK limits events itself."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if "text/event-stream" not in response.headers.get("content-type", ""):
            response.stream = _LimitedStream(response.stream)
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > MAX_MCP_MESSAGE_BYTES:
                raise httpx2.ReadError(f"a response of more than {MAX_MCP_MESSAGE_BYTES // 2**20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def make_http_client(
    headers: Mapping[str, str], read_seconds: float, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """Return a client that reads no environment variables and follows no redirects to other origins."""
    return httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=read_seconds),
        auth=auth,
        transport=_LimitedTransport(),
        trust_env=False,
    )


@asynccontextmanager
async def open_url(url: str, client: httpx2.AsyncClient, server: RunningServer) -> AsyncGenerator[TransportStreams]:
    """Exchange messages with a server at an address."""
    async with client:
        transport = streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MCP_MESSAGE_BYTES)
        async with transport as (read_stream, write_stream):
            yield _TappedStream(read_stream, server), write_stream
    server.ended.set()


class _TappedStream:
    """Passes messages on within the limits, and shows them to the server's record.

    The SDK reports a message that it cannot parse without the request that it answers, and the caller would wait
    for its whole timeout. The connection ends instead."""

    def __init__(self, stream: Any, server: RunningServer) -> None:
        self._stream = stream
        self._server = server

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._check(await self._stream.receive())

    def _check(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage):
            if isinstance(item, ValueError | RecursionError):
                self._end(UNREADABLE)
            return item
        try:
            return self._server.receive(item)
        except ServerFault as fault:
            self._end(str(fault))
            return fault

    def _end(self, fault: str) -> None:
        self._server.fault = self._server.fault or fault
        self._server.ended.set()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._check(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


Transport = AbstractAsyncContextManager[TransportStreams]
