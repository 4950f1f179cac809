"""The prompts of approved MCP servers: templates of messages that a user chooses. A server may change them at any
time, so they are shown to the user before they are sent."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import McpPrompt, McpPromptMessage
from treadle.domain.users import LOCAL_USER
from treadle.mcp.catalog import McpCatalog
from treadle.mcp.pool import ServerPool
from treadle.mcp.server_target import ServerTarget
from treadle.mcp.tools import ApprovedServer
from treadle.ports.tool import ToolError

if TYPE_CHECKING:
    from treadle.mcp.connection import ServerConnection

_Result = TypeVar("_Result")


class ServerPrompts:
    """Lists and reads prompts over the connections that the tools of an agent use."""

    def __init__(self, catalog: McpCatalog, pool: ServerPool) -> None:
        self._catalog = catalog
        self._pool = pool

    async def list_prompts(self, agent: AgentSpec, workspace: Path) -> Sequence[McpPrompt]:
        """Return the prompts of all servers that answer."""
        servers = self._catalog.list_approved(agent)
        found = await asyncio.gather(*(self._list_of(server, agent, workspace) for server in servers))
        return [prompt for prompts in found for prompt in prompts]

    async def read_prompt(
        self, agent: AgentSpec, workspace: Path, server: str, name: str, arguments: Mapping[str, str]
    ) -> McpPromptMessage:
        """Return a prompt as a message. Raise ToolError if the server is not approved or does not answer."""
        chosen = next((each for each in self._catalog.list_approved(agent) if each.name == server), None)
        if chosen is None:
            raise ToolError(f"there is no approved MCP server `{server}`.")
        return await self._use(chosen, agent, workspace, lambda opened: opened.get_prompt(name, dict(arguments)))

    async def _list_of(self, server: ApprovedServer, agent: AgentSpec, workspace: Path) -> Sequence[McpPrompt]:
        try:
            return await self._use(server, agent, workspace, lambda opened: opened.list_prompts())
        except ToolError:  # the state of its connection says why
            return ()

    async def _use(
        self,
        server: ApprovedServer,
        agent: AgentSpec,
        workspace: Path,
        request: "Callable[[ServerConnection], Awaitable[_Result]]",
    ) -> _Result:
        target = ServerTarget(
            name=server.name,
            server=server.settings,
            workspace=workspace,
            policy=agent.confinement,
            user=LOCAL_USER,
            owner=server.agent,
            allows_write=server.allows_write,
            contents=server.contents,
            approver=server.approver,
        )
        connection, _ = await self._pool.connect(target)
        try:
            async with asyncio.timeout(server.settings.timeout):
                return await request(connection)
        except TimeoutError:
            seconds = server.settings.timeout
            raise ToolError(f"the MCP server `{server.name}` did not answer within {seconds:g} s.") from None
