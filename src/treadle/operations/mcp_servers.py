"""The MCP servers of a home, with the state of their approvals and connections."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.operations.context import Context
from treadle.operations.mcp_status import McpInspection, McpServerView
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class OneMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    agent: Annotated[str | None, Meta(description="The agent whose file configures it.")] = None


class ApproveMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="The digest of the inspection.")]
    agent: str | None = None


LIST = Operation(
    "mcp.list", "GET", "/v1/mcp/servers", scope="admin", request=NoParameters, response=Page[McpServerView]
)
INSPECT = Operation(
    "mcp.inspect",
    "POST",
    "/v1/mcp/servers/{name}/inspection",
    scope="admin",
    request=OneMcpServer,
    response=McpInspection,
    errors=(404, 422),
)
APPROVE = Operation(
    "mcp.approve",
    "PUT",
    "/v1/mcp/servers/{name}/approval",
    scope="admin",
    request=ApproveMcpServer,
    response=McpServerView,
    errors=(404, 422),
)
REVOKE = Operation(
    "mcp.revoke",
    "DELETE",
    "/v1/mcp/servers/{name}/approval",
    scope="admin",
    request=OneMcpServer,
    response=type(None),
    errors=(404, 422),
)


@LIST.handler
async def list_servers(context: Context, request: NoParameters) -> Page[McpServerView]:
    """List MCP servers.

    Their approvals come from the home. Their connections are those of the process that answers."""
    return Page(tuple(context.mcp.servers()))


@INSPECT.handler
async def inspect_server(context: Context, request: OneMcpServer) -> McpInspection:
    """Connect to an MCP server and list its tools.

    The server is started in the sandbox, and stopped again."""
    return await context.mcp.inspect(request.name, request.agent)


@APPROVE.handler
async def approve_server(context: Context, request: ApproveMcpServer) -> McpServerView:
    """Approve an MCP server.

    `digest` comes from the inspection that the reviewer has read. The server is inspected again: if anything has
    changed since, nothing is approved. The approved tools count for sessions that begin after it."""
    return await context.mcp.approve(request.name, request.agent, request.digest)


@REVOKE.handler
async def revoke_server(context: Context, request: OneMcpServer) -> None:
    """Revoke the approval of an MCP server. Its tools cannot be called any more."""
    context.mcp.revoke(request.name, request.agent)
