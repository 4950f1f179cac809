"""An MCP server, which mcp_program.py uses. It needs the extra `mcp`."""

from mcp.server import MCPServer

server = MCPServer("clock")


@server.tool()
def now(city: str) -> str:
    "Return the time in a city."
    return {"Rome": "12:00", "Tokyo": "19:00"}[city]


if __name__ == "__main__":
    server.run()
