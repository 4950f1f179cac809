"""How a connection tells a lost server from a server that answers with an error."""

import asyncio
from typing import Any

import pytest
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from treadle.mcp.connection import OUTCOME_UNKNOWN, ServerConnection
from treadle.mcp.transports import RunningServer
from treadle.ports.tool import ToolError

CLOSED: Any = vars(jsonrpc_dispatcher)["_CLOSED_OUTCOME"]


class FailingClient:
    def __init__(self, error: MCPError) -> None:
        self.error = error

    async def call_tool(self, *arguments: Any, **options: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (MCPError(CLOSED.code, CLOSED.message), True),
        (MCPError(INVALID_REQUEST, "Session terminated"), True),
        (MCPError(CLOSED.code, "The disk is full"), False),
        (MCPError(INVALID_REQUEST, "No such tool"), False),
    ],
)
async def test_a_lost_connection_is_recognised_by_the_error_of_the_library(error: MCPError, is_lost: bool) -> None:
    transport: Any = None
    context: Any = None
    server = RunningServer()
    connection: Any = ServerConnection("files", transport, server, "1")
    connection._client = FailingClient(error)

    async def end() -> None:
        await server.ended.wait()
        connection.lost.set()

    ending = asyncio.create_task(end())
    with pytest.raises(ToolError) as raised:
        await connection.call("read", {}, context)
    assert server.ended.is_set() is is_lost
    assert (OUTCOME_UNKNOWN in str(raised.value)) is is_lost
    ending.cancel()
