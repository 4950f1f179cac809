"""Events of connections to MCP servers."""

from treadle.domain.events.definitions import EventData, durable


@durable("mcp_connected", stream="system")
class McpConnected(EventData, frozen=True):
    """A connection to an MCP server was opened for a call of this run."""

    server: str
    title: str
    """How the server names itself, with its version."""
    protocol: str
    """The revision of the protocol."""
    tools: int
    """The number of tools that the server lists."""


@durable("mcp_disconnected", stream="system")
class McpDisconnected(EventData, frozen=True):
    """The connection to an MCP server was lost during a call of this run."""

    server: str
    reason: str


@durable("mcp_failed", stream="system")
class McpFailed(EventData, frozen=True):
    """An MCP server could not be started or reached for a call of this run."""

    server: str
    reason: str
