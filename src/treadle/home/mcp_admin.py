"""What `treadle mcp` does with servers: connect to inspect them, sign in, and approve them."""

import os
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.domain.mcp_servers import NO_CONSENT, Consent
from treadle.domain.permissions import SandboxPolicy
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import ServerEntry
from treadle.home.mcp_pool import HomeCredentials, make_contents, make_pool
from treadle.mcp.pins import Pin, PinnedContent, hash_entry, list_pinned_contents
from treadle.mcp.pool import ServerPool
from treadle.mcp.server_target import ServerTarget
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
    allows_write: bool = False
    """It was started as a program that may write the workspace although it has secrets or the network."""
    contents: tuple[PinnedContent, ...] = ()
    """The copies of code that it ran from."""


async def inspect_server(
    approvals: HomeApprovals,
    entry: ServerEntry,
    show_login: Callable[[str], Awaitable[None]] | None = None,
    consent: Consent = NO_CONSENT,
) -> Inspection:
    """Connect to a server and list its tools. Raise ToolError if it cannot be used.

    A server of the home gets an empty workspace. With `show_login`, the user signs in with a browser."""
    with tempfile.TemporaryDirectory(prefix="treadle-mcp-") as folder:
        target = _make_target(approvals.home, entry, folder, consent)
        async with _open_pool(approvals, target, show_login) as pool:
            if consent.content:
                target = structs.replace(target, contents=await pool.pin_contents(target))
            began = time.monotonic()
            connection, _ = await pool.connect(target)
            tools = tuple(connection.tools.values())
            gap = await pool.explain_missing_confinement(target)
            return Inspection(
                title=connection.title,
                protocol=connection.protocol,
                tools=tools,
                seconds=time.monotonic() - began,
                confinement=gap,
                allows_write=target.allows_write,
                contents=target.contents,
            )


def approve_server(approvals: HomeApprovals, entry: ServerEntry, inspection: Inspection) -> None:
    """Pin the entry of a server and the tools that were shown."""
    pin = Pin(
        server=entry.name,
        entry=hash_entry(entry.settings),
        tools=inspection.tools,
        agent=entry.agent,
        title=inspection.title,
        approved=round(time.time()),
        allows_write=inspection.allows_write,
        contents=inspection.contents,
    )
    approvals.select_pins(entry.agent).write(pin)
    remove_unused_contents(approvals)


def revoke_server(approvals: HomeApprovals, server: str, agent: str = "") -> bool:
    """Remove the approval of a server. Return False if it has none."""
    had_pin = approvals.select_pins(agent).remove(server, agent)
    remove_unused_contents(approvals)
    return had_pin


def remove_unused_contents(approvals: HomeApprovals) -> None:
    """Remove the copies of code that no approval refers to any more."""
    make_contents(approvals).remove_unused(list_pinned_contents(approvals.home.path))


def _make_target(home: Home, entry: ServerEntry, empty: str, consent: Consent) -> ServerTarget:
    """Return the target of an inspection. What an earlier approval of the same entry allows still counts."""
    is_known = entry.pin is not None and entry.pin.entry == hash_entry(entry.settings)
    pin = entry.pin if is_known else None
    agent = entry.owner
    return ServerTarget(
        name=entry.name,
        server=entry.settings,
        workspace=(Path(empty) if agent is None else home.workspace(agent)).resolve(),
        policy=SandboxPolicy() if agent is None else agent.confinement,
        owner=entry.agent,
        allows_write=consent.write or (pin is not None and pin.allows_write),
        contents=() if pin is None or consent.content else pin.contents,
        approver=entry.advice.approver,
    )


@asynccontextmanager
async def _open_pool(
    approvals: HomeApprovals, target: ServerTarget, show_login: Callable[[str], Awaitable[None]] | None
) -> AsyncGenerator[ServerPool]:
    home = approvals.home
    vault = HomeVault(home.path, os.environ)
    commands = ShellCommands(hidden=(home.path, *list_database_files(approvals.database)), user=os.environ)
    credentials, listener = HomeCredentials(home, vault), None
    if show_login is not None:
        from treadle.home.mcp_login import start_login

        login, listener = await start_login(home, vault, target, show_login)
        credentials = _LoginCredentials(home, vault, login)
    pool = make_pool(approvals, commands, credentials)
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
