"""An MCP server on standard input and output, made with the official SDK."""

from mcp.server import MCPServer

server = MCPServer("official")


@server.tool()
def now(city: str) -> str:
    """Return the time in a city."""
    return f"12:00 in {city}"


if __name__ == "__main__":
    server.run()
