"""The MCP servers that a home and its agents configure, and what is approved of them. No server is started."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal

from msgspec import Struct

from treadle.config.home import Home
from treadle.domain.errors import ConfigError, TreadleError, UsageError
from treadle.domain.mcp_servers import McpConnectionView, McpServerSettings
from treadle.domain.suggestions import find_closest
from treadle.mcp.names import make_tool_name
from treadle.mcp.pins import Pin, PinFolder, explain_refusal, hash_tool
from treadle.operations.mcp_status import McpServerView

State = Literal["approved", "changed", "new", "disabled"]


class Consent(Struct, frozen=True):
    """What an approval allows explicitly."""

    write: bool = False
    """The program may write the workspace although it has secrets or the network."""
    content: bool = False
    """Code in places that a run can write is pinned as it is now."""

    @property
    def flags(self) -> str:
        """The options of `treadle mcp approve` that give it."""
        return f"{' --allow-write' if self.write else ''}{' --pin-content' if self.content else ''}"


NO_CONSENT = Consent()


class ServerEntry(Struct, frozen=True):
    """A configured server and its approval."""

    name: str
    settings: McpServerSettings
    agent: str = ""
    pin: Pin | None = None

    @property
    def state(self) -> State:
        if not self.settings.enabled:
            return "disabled"
        if self.pin is None:
            return "new"
        return "changed" if explain_refusal(self.name, self.settings, self.pin, self.agent) else "approved"

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The approved tools, as the server sent them."""
        return () if self.pin is None else self.pin.tools


def make_server_view(entry: ServerEntry, connections: Sequence[McpConnectionView] = ()) -> McpServerView:
    """Return a server as clients see it: over HTTP and in the output of `treadle mcp`."""
    settings = entry.settings
    tools = tuple([make_tool_name(entry.name, str(raw["name"])) for raw in entry.tools])
    return McpServerView(
        name=entry.name,
        agent=entry.agent or None,
        transport="http" if settings.is_remote else "stdio",
        state=entry.state,
        tools=tools if entry.state == "approved" else (),
        connections=tuple(connections),
        target=describe_target(settings),
    )


def describe_target(settings: McpServerSettings) -> str:
    """Return the command line of a server or its address."""
    return settings.url or " ".join((settings.command or "", *settings.args))


class ToolChanges(Struct, frozen=True):
    """How the tools of a server differ from those that are approved."""

    added: tuple[dict[str, Any], ...] = ()
    changed: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ()
    """Before and after."""
    removed: tuple[dict[str, Any], ...] = ()
    same: int = 0

    @property
    def any(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def list_entries(home: Home) -> list[ServerEntry]:
    """Return the servers of the home, then those of its agents. An agent that cannot be read is left out."""
    found = [_make_entry(home, name, server) for name, server in home.config().mcp_servers.items()]
    for agent in home.agents():
        try:
            servers = home.agent(agent).mcp_servers
        except TreadleError:
            continue
        found += [_make_entry(home, name, server, agent) for name, server in servers.items()]
    return found


def find_entry(home: Home, name: str, agent: str = "") -> ServerEntry:
    """Return one server. Raise UsageError if it is not configured."""
    servers = home.agent(agent).mcp_servers if agent else home.config().mcp_servers
    if name not in servers:
        near = find_closest(name, list(servers))
        meant = f"Did you mean `{near}`?" if near else "`treadle mcp list` shows which there are."
        where = f"of agent `{agent}`" if agent else "of this home"
        raise UsageError(f"There is no MCP server `{name}` in the configuration {where}. {meant}")
    return _make_entry(home, name, servers[name], agent)


def _make_entry(home: Home, name: str, server: McpServerSettings, agent: str = "") -> ServerEntry:
    try:
        pin = PinFolder(home.path).read(name, agent)
    except ConfigError:
        pin = None
    return ServerEntry(name, server, agent, pin)


def store_secrets(home: Home, secrets: Mapping[str, str]) -> None:
    """Store secrets of an imported file in the vault. No agent is granted them; the entries refer to them."""
    if not secrets:
        return
    from treadle.vault.store import VaultStore

    home.ensure()
    with closing(VaultStore(home.path, os.environ)) as store:
        for name, value in secrets.items():
            store.put(name, value, forced=True)


def compare_tools(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> ToolChanges:
    """Return how two lists of raw tool objects differ."""
    old = {str(tool["name"]): dict(tool) for tool in before}
    new = {str(tool["name"]): dict(tool) for tool in after}
    common = [name for name in new if name in old]
    different = [name for name in common if hash_tool(old[name]) != hash_tool(new[name])]
    return ToolChanges(
        tuple(tool for name, tool in new.items() if name not in old),
        tuple((old[name], new[name]) for name in different),
        tuple(tool for name, tool in old.items() if name not in new),
        len(common) - len(different),
    )
