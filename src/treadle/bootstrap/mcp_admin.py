"""What `treadle mcp` does with servers: connect to inspect them, sign in, and approve them."""

import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from treadle.bootstrap.mcp import HomeCredentials
from treadle.bootstrap.mcp_entries import ServerEntry
from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.version import VERSION
from treadle.mcp.pins import Pin, PinFolder, hash_entry
from treadle.mcp.pool import ServerPool, ServerTarget
from treadle.sandbox.commands import ShellCommands
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    import httpx2


class Inspection(Struct, frozen=True):
    """What a server says about itself."""

    title: str
    protocol: str
    tools: tuple[dict[str, Any], ...]
    seconds: float
    """From the start to the list of tools."""
    confinement: str = ""
    """Why the program ran without a sandbox; empty if it did not."""


async def inspect_server(
    home: Home, entry: ServerEntry, show_login: Callable[[str], Awaitable[None]] | None = None
) -> Inspection:
    """Connect to a server and list its tools. Raise ToolError if it cannot be used.

    A server of the home gets an empty workspace. With `show_login`, the user signs in with a browser."""
    with tempfile.TemporaryDirectory(prefix="treadle-mcp-") as folder:
        target = _make_target(home, entry, folder)
        async with _open_pool(home, target, show_login) as pool:
            began = time.monotonic()
            connection, _ = await pool.connect(target)
            tools = tuple(connection.tools.values())
            gap = await pool.explain_missing_confinement(target)
            return Inspection(connection.title, connection.protocol, tools, time.monotonic() - began, gap)


def approve_server(home: Home, entry: ServerEntry, inspection: Inspection) -> None:
    """Pin the entry of a server and the tools that were shown."""
    pin = Pin(
        entry.name, hash_entry(entry.settings), inspection.tools, entry.agent, inspection.title, round(time.time())
    )
    PinFolder(home.path).write(pin)


def _make_target(home: Home, entry: ServerEntry, empty: str) -> ServerTarget:
    if not entry.agent:
        return ServerTarget(entry.name, entry.settings, Path(empty).resolve(), SandboxPolicy())
    agent = home.agent(entry.agent)
    return ServerTarget(entry.name, entry.settings, home.workspace(agent), agent.confinement, owner=entry.agent)


@asynccontextmanager
async def _open_pool(
    home: Home, target: ServerTarget, show_login: Callable[[str], Awaitable[None]] | None
) -> AsyncGenerator[ServerPool]:
    vault = HomeVault(home.path, os.environ)
    commands = ShellCommands(hidden=(home.path, *list_database_files(home.database_url)), user=os.environ)
    credentials, listener = HomeCredentials(home, vault), None
    if show_login is not None:
        from treadle.bootstrap.mcp_login import start_login

        login, listener = await start_login(home, vault, target, show_login)
        credentials = _LoginCredentials(home, vault, login)
    pool = ServerPool(commands, credentials, VERSION)
    try:
        yield pool
    finally:
        await pool.close()
        commands.close()
        vault.close()
        if listener is not None:
            await listener.close()


class _LoginCredentials(HomeCredentials):
    """Signs in with a browser."""

    def __init__(self, home: Home, vault: HomeVault, login: "httpx2.Auth") -> None:
        super().__init__(home, vault)
        self._login = login

    def authenticate(self, target: ServerTarget) -> "httpx2.Auth | None":
        return self._login
