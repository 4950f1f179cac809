"""The MCP servers that a home and its agents configure, and what is approved of them. No server is started."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal

from msgspec import Struct

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, TreadleError, UnknownMcpServer
from treadle.domain.mcp_servers import McpConnectionView, McpServerSettings
from treadle.domain.suggestions import find_closest
from treadle.home.mcp_approvals import HomeApprovals
from treadle.mcp.approval_advice import ApprovalAdvice
from treadle.mcp.names import make_tool_name
from treadle.mcp.pins import Pin, explain_refusal, hash_tool
from treadle.operations.mcp_status import McpServerView

State = Literal["approved", "changed", "new", "disabled"]


class ServerEntry(Struct, frozen=True):
    """A configured server and its approval."""

    name: str
    settings: McpServerSettings
    advice: ApprovalAdvice
    owner: AgentSpec | None = None
    """The agent that configures it; None for a server of the home."""
    pin: Pin | None = None

    @property
    def agent(self) -> str:
        """The name of the agent that configures it; empty for a server of the home."""
        return "" if self.owner is None else self.owner.name

    @property
    def state(self) -> State:
        if not self.settings.enabled:
            return "disabled"
        if self.pin is None:
            return "new"
        return "changed" if explain_refusal(self.settings, self.pin, self.advice) else "approved"

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


def list_entries(home: Home, approvals: HomeApprovals | None = None) -> list[ServerEntry]:
    """Return the servers of the home, then those of its agents, then those of the agents of a program. An agent
    that cannot be read is left out."""
    known = approvals or HomeApprovals(home)
    found = [make_entry(known, name, server) for name, server in home.config().mcp_servers.items()]
    for agent in (*_read_agents(home), *known.program_agents.values()):
        found += [make_entry(known, name, server, agent) for name, server in agent.mcp_servers.items()]
    return found


def _read_agents(home: Home) -> Iterator[AgentSpec]:
    for name in home.agents():
        with suppress(TreadleError):
            yield home.agent(name)


def find_entry(home: Home, name: str, agent: str = "", approvals: HomeApprovals | None = None) -> ServerEntry:
    """Return one server of the home or of an agent. Raise UnknownMcpServer if it is not configured."""
    known = approvals or HomeApprovals(home)
    owner = None if not agent else known.program_agents.get(agent) or home.agent(agent)
    servers = home.config().mcp_servers if owner is None else owner.mcp_servers
    if name not in servers:
        near = find_closest(name, list(servers))
        meant = f"Did you mean `{near}`?" if near else "`treadle mcp list` shows which there are."
        where = f"of agent `{agent}`" if agent else "of this home"
        raise UnknownMcpServer(f"There is no MCP server `{name}` in the configuration {where}. {meant}")
    return make_entry(known, name, servers[name], owner)


def make_entry(
    approvals: HomeApprovals, name: str, server: McpServerSettings, owner: AgentSpec | None = None
) -> ServerEntry:
    """Return a configured server with its approval. A damaged approval counts as none."""
    agent = "" if owner is None else owner.name
    try:
        pin = approvals.find_pin(name, agent, server)
    except ConfigError:
        pin = None
    return ServerEntry(name, server, approvals.advise(name, agent), owner, pin)


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
