"""The MCP servers of a home: their tools for agents, and their connections, which are opened when they are used."""

from functools import cached_property
from typing import TYPE_CHECKING

from treadle.config.home import Home
from treadle.domain.mcp_servers import McpConnectionView
from treadle.domain.version import VERSION
from treadle.home.writable_places import HomePlaces
from treadle.mcp.catalog import McpCatalog
from treadle.mcp.pins import FOLDER as PINS
from treadle.mcp.pins import PinFolder
from treadle.mcp.pool import ServerPool
from treadle.mcp.server_target import ServerTarget
from treadle.ports.sandbox import Programs
from treadle.sandbox.contents import ContentFolder
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    import httpx2


class HomeCredentials:
    """Implements `mcp.pool.Credentials` with the vault of the home."""

    def __init__(self, home: Home, vault: HomeVault) -> None:
        self._home = home
        self._vault = vault

    def reveal(self, name: str) -> str | None:
        return self._vault.value(name)

    def authenticate(self, target: ServerTarget) -> "httpx2.Auth | None":
        from treadle.home.mcp_login import make_stored_login  # only for remote servers

        return make_stored_login(self._home, self._vault, target)


def make_contents(home: Home) -> ContentFolder:
    """Return the private copies of code that is pinned by content."""
    places = HomePlaces(home)
    return ContentFolder(home.path / PINS / "contents", places.find_all)


def make_pool(home: Home, programs: Programs, credentials: HomeCredentials) -> ServerPool:
    """Return a pool whose programs follow the rules of the home."""
    return ServerPool(programs, credentials, VERSION, places=HomePlaces(home), contents=make_contents(home))


class HomeMcp:
    """The only owner of the connections of a process."""

    def __init__(self, home: Home, vault: HomeVault, programs: Programs) -> None:
        self._home = home
        self._vault = vault
        self._programs = programs
        self.pins = PinFolder(home.path)
        self.catalog = McpCatalog(lambda: home.config().mcp_servers, self.pins, lambda: self.pool)

    @cached_property
    def pool(self) -> ServerPool:
        return make_pool(self._home, self._programs, HomeCredentials(self._home, self._vault))

    @property
    def states(self) -> list[tuple[str, McpConnectionView]]:
        """The state of every connection of this process, with the name of its server."""
        return self.pool.states if "pool" in self.__dict__ else []

    async def close(self) -> None:
        if "pool" in self.__dict__:
            await self.pool.close()
