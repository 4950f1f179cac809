"""Connections to MCP servers by the rules of a home: its secrets, its sign-ins, and what its runs write."""

from typing import TYPE_CHECKING

from treadle.config.home import Home
from treadle.domain.version import VERSION
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.writable_places import HomePlaces
from treadle.mcp.pins import FOLDER as PINS
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


def make_contents(approvals: HomeApprovals) -> ContentFolder:
    """Return the private copies of code that is pinned by content."""
    return ContentFolder(approvals.home.path / PINS / "contents", _make_places(approvals).find_all)


def make_pool(approvals: HomeApprovals, programs: Programs, credentials: HomeCredentials) -> ServerPool:
    """Return a pool whose programs follow the rules of the home."""
    places, contents = _make_places(approvals), make_contents(approvals)
    return ServerPool(programs, credentials, VERSION, places=places, contents=contents)


def _make_places(approvals: HomeApprovals) -> HomePlaces:
    return HomePlaces(approvals.home, approvals.database, approvals.program_agents.values)
