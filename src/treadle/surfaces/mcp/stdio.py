"""`treadle mcp serve`: the MCP server on standard input and output. This module imports the SDK."""

from mcp.server.stdio import stdio_server

from treadle.api.engine import create_engine
from treadle.config.home import DEFAULT_AGENT, Home
from treadle.domain.access import OWNER
from treadle.domain.version import VERSION
from treadle.surfaces.cli.connection import open_home
from treadle.surfaces.mcp.backend import McpBackend
from treadle.surfaces.mcp.server import AgentServer
from treadle.surfaces.mcp.skill_prompts import list_skill_prompts


async def serve_stdio(home: Home, only: tuple[str, ...] | None) -> int:
    """Serve until standard input ends. Runs go to the process that owns the home, or run in this one."""
    for name in only or ():
        home.agent(name)  # raises UnknownAgent

    def list_agents() -> list[str]:
        names = home.agents() or [DEFAULT_AGENT]
        return [name for name in names if only is None or name in only]

    async with open_home(create_engine(home=home), home) as access:
        backend = McpBackend(access.client, OWNER, list_agents, lambda: list_skill_prompts(home.path))
        server = AgentServer(lambda request: backend, VERSION).server
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    return 0
