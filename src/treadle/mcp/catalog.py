"""The tools of approved MCP servers, from their pins. No server is started to list them."""

import logging
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError
from treadle.domain.mcp_servers import SEPARATOR, McpServerSettings
from treadle.mcp.approval_advice import ApprovalAdvice
from treadle.mcp.names import find_server_name, make_tool_name
from treadle.mcp.pins import Pin, explain_refusal
from treadle.mcp.pool import ServerPool
from treadle.mcp.tools import ApprovedServer, McpTool

log = logging.getLogger("treadle.mcp")


class ServerApprovals(Protocol):
    """What is approved, and how to approve what is not."""

    def find_pin(self, server: str, agent: str, settings: McpServerSettings) -> Pin | None:
        """Return the pin of a server as it is configured, or else an earlier one, or None. Raise ConfigError if it
        is damaged."""
        ...

    def advise(self, server: str, agent: str) -> ApprovalAdvice:
        """Return how to approve a server."""
        ...


class McpCatalog:
    """Implements `ports.tool.ToolSource`: tools of the servers of the home, and of those of an agent."""

    def __init__(
        self,
        read_servers: Callable[[], Mapping[str, McpServerSettings]],
        approvals: ServerApprovals,
        make_pool: Callable[[], ServerPool],
    ) -> None:
        self._read_servers = read_servers
        """Returns the entries of the home as they are now."""
        self._approvals = approvals
        self._make_pool = make_pool
        self._warned: set[str] = set()
        self._cache: dict[tuple[str, str], tuple[Pin, McpServerSettings, dict[str, McpTool]]] = {}

    def names(self, glob: str, agent: AgentSpec | None = None) -> Iterable[str]:
        """Return the names of all approved tools that match a glob. Log once why a named server has none."""
        prefix, separator, _ = glob.partition(SEPARATOR)
        names_server = bool(separator) and not any(sign in prefix for sign in "*?[")
        servers = self._list_servers(agent)
        chosen = (prefix,) if names_server and prefix in servers else () if names_server else tuple(servers)
        found = [name for server in chosen for name in self._tools(server, agent) if fnmatchcase(name, glob)]
        if not found and names_server and (reason := self.explain(glob, agent)) is not None:
            self._warn_once(reason)
        return found

    def find(self, name: str, agent: AgentSpec | None = None) -> McpTool | None:
        server = find_server_name(name)
        if server is None or server not in self._list_servers(agent):
            return None
        return self._tools(server, agent).get(name)

    def list_approved(self, agent: AgentSpec | None = None) -> list[ApprovedServer]:
        """Return the servers that can be used."""
        found = (self._find_approved(server, agent) for server in self._list_servers(agent))
        return [server for server in found if server is not None]

    def _find_approved(self, server: str, agent: AgentSpec | None) -> ApprovedServer | None:
        settings, owner = self._list_servers(agent)[server], self._find_owner(server, agent)
        pin, advice = self._read_pin(server, owner, settings), self._approvals.advise(server, owner)
        if pin is None or explain_refusal(settings, pin, advice):
            return None
        return ApprovedServer(
            name=server,
            settings=settings,
            agent=owner,
            allows_write=pin.allows_write,
            contents=pin.contents,
            approver=advice.approver,
        )

    def explain(self, name: str, agent: AgentSpec | None = None) -> str | None:
        """Return why a tool cannot be used although its name is that of a tool of an MCP server, or None."""
        server = find_server_name(name)
        if server is None:
            return None
        settings = self._list_servers(agent).get(server)
        if settings is None:
            return None
        owner = self._find_owner(server, agent)
        advice = self._approvals.advise(server, owner)
        if reason := explain_refusal(settings, self._read_pin(server, owner, settings), advice):
            return reason
        offered = ", ".join(self._tools(server, agent)) or "none"
        return f"The MCP server `{server}` has no approved tool `{name}`; it has: {offered}."

    def _warn_once(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("%s", reason)

    def _list_servers(self, agent: AgentSpec | None) -> Mapping[str, McpServerSettings]:
        servers = self._read_servers()
        return servers if agent is None or not agent.mcp_servers else {**servers, **agent.mcp_servers}

    def _find_owner(self, server: str, agent: AgentSpec | None) -> str:
        return agent.name if agent is not None and server in agent.mcp_servers else ""

    def _tools(self, server: str, agent: AgentSpec | None) -> Mapping[str, McpTool]:
        """Return the tools of a server by name; none if it is disabled or not approved as it is configured."""
        settings, owner = self._list_servers(agent)[server], self._find_owner(server, agent)
        pin = self._read_pin(server, owner, settings)
        known = self._cache.get((owner, server))
        if known is not None and known[0] is pin and (known[1] is settings or known[1] == settings):
            return known[2]
        approved = self._find_approved(server, agent)
        if pin is None or approved is None:
            return {}
        pool = self._make_pool()
        tools = {
            make_tool_name(server, str(raw["name"])): McpTool(approved, raw, pool)
            for raw in pin.tools
            if any(fnmatchcase(str(raw["name"]), glob) for glob in settings.tools)
        }
        self._cache[owner, server] = (pin, settings, tools)
        return tools

    def _read_pin(self, server: str, owner: str, settings: McpServerSettings) -> Pin | None:
        try:
            return self._approvals.find_pin(server, owner, settings)
        except ConfigError as error:
            log.warning("%s", error)
            return None
