"""`treadle mcp serve`: the MCP server on standard input and output. This module imports the SDK."""

from collections.abc import Collection

from mcp.server.stdio import stdio_server

from treadle.config.home import DEFAULT_AGENT, Home
from treadle.domain.access import OWNER
from treadle.domain.version import VERSION
from treadle.operations.operation import OperationClient
from treadle.surfaces.mcp.backend import McpBackend
from treadle.surfaces.mcp.server import AgentServer
from treadle.surfaces.mcp.skill_prompts import list_skill_prompts


async def serve_stdio(client: OperationClient, home: Home, only: Collection[str]) -> None:
    """Serve the agents of a home, or only these, until standard input ends."""

    def list_agents() -> list[str]:
        names = home.agents() or [DEFAULT_AGENT]
        return [name for name in names if not only or name in only]

    backend = McpBackend(client, OWNER, list_agents, lambda: list_skill_prompts(home.path))
    server = AgentServer(lambda request: backend, VERSION).server
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
