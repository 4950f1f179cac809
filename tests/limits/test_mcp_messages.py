"""Limits on the messages of MCP servers: nothing that a server sends is unbounded, and no call waits for its
timeout because of it."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from tests.patience import HANG_SECONDS
from treadle.domain.limits import MAX_MCP_BLOCKS, MAX_MCP_TOOLS
from treadle.mcp.connection import ConnectionFailed, ServerConnection
from treadle.mcp.elicitation import ask_person
from treadle.mcp.messages import MessageLimits, ServerFault, cut, find_answered_request, is_value_too_deep
from treadle.mcp.results import make_observation
from treadle.mcp.transports import RunningServer, make_http_client, open_url
from treadle.ports.tool import ToolContext, ToolError

Reply = Callable[[dict[str, Any]], dict[str, Any] | bytes | None]
ECHO = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}}
DEEP = '{"a":' * 900 + "1" + "}" * 900


def response(result: dict[str, Any]) -> SessionMessage:
    return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result))


def make_context() -> ToolContext:
    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        asked.append((question, options))
        return "x"

    asked: list[Any] = []
    context: Any = type("Context", (), {"ask": staticmethod(ask), "run_id": "r", "progress": print, "asked": asked})
    return cast("ToolContext", context)


@asynccontextmanager
async def serve_http(reply: Reply, *, events: bool) -> AsyncGenerator[str, None]:
    """Serve MCP over HTTP, as JSON or as events."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                if not head.startswith(b"post"):
                    writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                    continue
                asked = json.loads(await reader.readexactly(length))
                found = reply(asked) if "id" in asked else None
                if found is None:
                    writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                    continue
                text = json.dumps(asked["id"]).encode()
                body = b'{"jsonrpc":"2.0","id":' + text + b',"result":' + as_bytes(found) + b"}"
                body = b"event: message\ndata: " + body + b"\n\n" if events else body
                kind = b"text/event-stream" if events else b"application/json"
                start = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
                writer.write(start + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


def as_bytes(found: dict[str, Any] | bytes) -> bytes:
    return found if isinstance(found, bytes) else json.dumps(found).encode()


def answer(pages: Callable[[str | None], dict[str, Any]], called: bytes = b"{}") -> Reply:
    def reply(asked: dict[str, Any]) -> dict[str, Any] | bytes | None:
        match asked["method"]:
            case "initialize":
                capabilities: dict[str, Any] = {"tools": {}}
                info = {"name": "n" * 5000, "version": "1"}
                version = asked["params"]["protocolVersion"]
                return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            case "tools/list":
                params: dict[str, Any] = asked.get("params") or {}
                return pages(params.get("cursor"))
            case "tools/call":
                return called
            case _:
                return {}

    return reply


async def with_server(
    reply: Reply, use: Callable[[ServerConnection], Awaitable[None]], *, events: bool = False
) -> None:
    async with serve_http(reply, events=events) as url:
        server = RunningServer()
        transport = open_url(url, make_http_client({}, HANG_SECONDS), server)
        connection = ServerConnection("s", transport, server, "1")
        try:
            await connection.open(HANG_SECONDS)
            await use(connection)
        finally:
            await connection.close()


@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
async def test_structured_content_that_is_too_deep_fails_its_call_at_once(events: bool) -> None:
    called = b'{"content": [], "structuredContent": ' + DEEP.encode() + b"}"

    async def use(connection: ServerConnection) -> None:
        with pytest.raises(ToolError, match=r"cannot be read|Failed to parse"):
            await connection.call("echo", {}, make_context())

    await with_server(answer(lambda _: {"tools": [ECHO]}, called), use, events=events)


def test_an_unreadable_line_of_a_program_is_matched_to_its_request() -> None:
    deep = DEEP.encode()
    assert find_answered_request(b'{"jsonrpc":"2.0","id":7,"result":{"structuredContent":' + deep + b"}}") == 7
    assert (
        find_answered_request(b'{"result":{"structuredContent":' + deep + b'},"id":"x-1","jsonrpc":"2.0"}') == "x-1"
    )
    assert find_answered_request(b"a line of a log") is None


def test_content_between_the_limits_of_two_parsers_fails_as_well() -> None:
    """The SDK reads 190 levels; what follows it, such as JSON Schema, may not."""
    deep: Any = 1
    for _ in range(150):
        deep = {"a": deep}
    limited = MessageLimits().apply(response({"content": [], "structuredContent": deep})).message
    assert isinstance(limited, types.JSONRPCError)
    assert not is_value_too_deep({"content": [{"type": "text", "text": "x"}]})


def test_content_blocks_beyond_the_limit_are_left_out_and_counted() -> None:
    blocks = [{"type": "text", "text": "x"}] * (MAX_MCP_BLOCKS + 5)
    limited = MessageLimits().apply(response({"content": blocks})).message
    assert isinstance(limited, types.JSONRPCResponse)
    assert len(limited.result["content"]) == MAX_MCP_BLOCKS + 1
    assert limited.result["content"][-1]["text"] == "[5 more content blocks are left out]"


def test_images_beyond_the_limits_are_named_and_not_shown() -> None:
    data = b64encode(b"x" * 10).decode()
    large = "A" * (7 * 2**20)
    content = [types.ImageContent(type="image", data=data, mime_type="image/png") for _ in range(10)]
    content.insert(0, types.ImageContent(type="image", data=large, mime_type="image/png"))
    observation = make_observation(types.CallToolResult(content=[*content]))
    assert len(observation.images) == 8
    assert observation.content.count("not shown") == 3


def test_tools_with_huge_or_deep_declarations_are_left_out() -> None:
    deep: Any = {}
    for _ in range(120):
        deep = {"properties": deep}
    tools = [
        ECHO,
        {**ECHO, "name": "large", "description": "x" * 300_000},
        {**ECHO, "name": "deep", "inputSchema": deep},
    ]
    limited = MessageLimits().apply(response({"tools": tools})).message
    assert isinstance(limited, types.JSONRPCResponse)
    assert [tool["name"] for tool in limited.result["tools"]] == ["echo"]


def test_messages_that_were_not_asked_for_are_bounded() -> None:
    limits = MessageLimits()
    progress = SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params={}))
    for _ in range(5000):
        limits.apply(progress)
    with pytest.raises(ServerFault, match="floods"):
        limits.apply(progress)


async def test_a_list_of_tools_ends_at_its_limit_and_at_a_repeated_cursor() -> None:
    asked: list[str | None] = []

    def many(cursor: str | None) -> dict[str, Any]:
        asked.append(cursor)
        start = int(cursor or 0)
        tools = [{**ECHO, "name": f"t{start + n}"} for n in range(1500)]
        return {"tools": tools, "nextCursor": str(start + 1500)}

    async def check(connection: ServerConnection) -> None:
        assert len(connection.tools) == MAX_MCP_TOOLS
        assert len(connection.title) == 200

    await with_server(answer(many), check)
    assert asked == [None, "1500"]
    asked.clear()

    def same(cursor: str | None) -> dict[str, Any]:
        asked.append(cursor)
        return {"tools": [ECHO], "nextCursor": "again"}

    async def listed(connection: ServerConnection) -> None:
        assert list(connection.tools) == ["echo"]

    await with_server(answer(same), listed)
    assert asked == [None, "again"]


async def test_endless_cursors_end_after_the_last_page_and_a_huge_cursor_fails() -> None:
    asked: list[str | None] = []

    def endless(cursor: str | None) -> dict[str, Any]:
        asked.append(cursor)
        return {"tools": [], "nextCursor": str(len(asked))}

    async def nothing(connection: ServerConnection) -> None:
        assert not connection.tools

    await with_server(answer(endless), nothing)
    assert len(asked) == 100
    with pytest.raises(ConnectionFailed, match="cursor of more than 4096 characters"):
        await with_server(answer(lambda _: {"tools": [ECHO], "nextCursor": "x" * 5000}), nothing)


async def test_a_question_with_too_many_fields_is_declined_and_its_options_are_bounded() -> None:
    async def ask(fields: dict[str, Any]) -> tuple[types.ElicitResult, list[Any]]:
        context: Any = make_context()
        schema: Any = {"type": "object", "properties": fields}
        params = types.ElicitRequestFormParams(message="m" * 9000, requested_schema=schema)
        return await ask_person("s", params, context), context.asked

    result, asked = await ask({f"f{n}": {"type": "string"} for n in range(51)})
    assert (result.action, asked) == ("decline", [])
    _, [(question, options)] = await ask({"f": {"type": "string", "enum": [str(n) for n in range(9000)]}})
    assert len(options) == 50
    assert len(question) < 3000


def test_errors_and_progress_are_cut() -> None:
    error = types.JSONRPCError(jsonrpc="2.0", id=1, error=types.ErrorData(code=1, message="x" * 9000))
    limited = MessageLimits().apply(SessionMessage(error)).message
    assert isinstance(limited, types.JSONRPCError)
    assert len(limited.error.message) == 2000
    assert cut("x" * 9000).endswith("…")
