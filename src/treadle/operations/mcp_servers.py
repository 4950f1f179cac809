"""The MCP servers of a home, with the state of their approvals and connections."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.mcp_servers import Consent
from treadle.operations.context import Context
from treadle.operations.mcp_status import McpInspection, McpServerView
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class OneMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    agent: Annotated[str | None, Meta(description="The agent whose file configures it.")] = None


AllowWrite = Annotated[
    bool, Meta(description="Let its program write the workspace although it has secrets or the network.")
]
PinContent = Annotated[bool, Meta(description="Pin code in places that a run can write, as it is now.")]


class InspectMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    agent: Annotated[str | None, Meta(description="The agent whose file configures it.")] = None
    allow_write: AllowWrite = False
    pin_content: PinContent = False


class ApproveMcpServer(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="The digest of the inspection.")]
    agent: str | None = None
    allow_write: AllowWrite = False
    pin_content: PinContent = False


LIST = Operation(
    "mcp.list", "GET", "/v1/mcp/servers", scope="admin", request=NoParameters, response=Page[McpServerView]
)
INSPECT = Operation(
    "mcp.inspect",
    "POST",
    "/v1/mcp/servers/{name}/inspection",
    scope="admin",
    request=InspectMcpServer,
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
async def inspect_server(context: Context, request: InspectMcpServer) -> McpInspection:
    """Connect to an MCP server and list its tools.

    The server is started in the sandbox, and stopped again."""
    consent = Consent(request.allow_write, request.pin_content)
    return await context.mcp.inspect(request.name, request.agent, consent)


@APPROVE.handler
async def approve_server(context: Context, request: ApproveMcpServer) -> McpServerView:
    """Approve an MCP server.

    `digest` comes from the inspection that the reviewer has read. The server is inspected again: if anything has
    changed since, nothing is approved. The approved tools count for sessions that begin after it."""
    consent = Consent(request.allow_write, request.pin_content)
    return await context.mcp.approve(request.name, request.agent, request.digest, consent)


@REVOKE.handler
async def revoke_server(context: Context, request: OneMcpServer) -> None:
    """Revoke the approval of an MCP server. Its tools cannot be called any more."""
    context.mcp.revoke(request.name, request.agent)
