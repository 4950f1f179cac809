"""The MCP servers of a home: their tools for agents, and their connections, which are opened when they are used."""

from functools import cached_property
from typing import TYPE_CHECKING

from treadle.config.home import Home
from treadle.domain.mcp_servers import McpConnectionView
from treadle.home.mcp_approvals import HomeApprovals
from treadle.mcp.catalog import McpCatalog
from treadle.mcp.pool import ServerPool
from treadle.ports.sandbox import Programs
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:  # imported when a server is used
    from treadle.home.mcp_programs import ProgramServers


class HomeMcp:
    """The only owner of the connections of a process."""

    def __init__(self, home: Home, vault: HomeVault, programs: Programs, database: str | None = None) -> None:
        self._home = home
        self._vault = vault
        self._programs = programs
        self.approvals = HomeApprovals(home, database)
        self.catalog = McpCatalog(lambda: home.config().mcp_servers, self.approvals, lambda: self.pool)

    @cached_property
    def program(self) -> "ProgramServers":
        """The servers of the agents of a program."""
        from treadle.home.mcp_programs import ProgramServers

        return ProgramServers(self.approvals, self._vault)

    @cached_property
    def pool(self) -> ServerPool:
        from treadle.home.mcp_pool import HomeCredentials, make_pool

        return make_pool(self.approvals, self._programs, HomeCredentials(self._home, self._vault))

    @property
    def states(self) -> list[tuple[str, McpConnectionView]]:
        """The state of every connection of this process, with the name of its server."""
        return self.pool.states if "pool" in self.__dict__ else []

    async def close(self) -> None:
        if "pool" in self.__dict__:
            await self.pool.close()
