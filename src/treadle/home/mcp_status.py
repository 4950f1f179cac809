"""The MCP servers of a home as operations show them: their approvals, their connections and their tools."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.mcp_servers import NO_CONSENT, Consent, McpConnectionView, McpPrompt, McpPromptMessage
from treadle.home.mcp import HomeMcp
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import (
    ServerEntry,
    compare_tools,
    describe_target,
    find_entry,
    list_entries,
    make_server_view,
)
from treadle.mcp.names import make_tool_name
from treadle.mcp.pins import hash_entry, hash_tool
from treadle.mcp.start_rules import explain_privilege, find_access
from treadle.operations.mcp_status import McpInspection, McpServerView, McpToolView
from treadle.ports.tool import ToolError

if TYPE_CHECKING:
    from treadle.home.mcp_admin import Inspection
    from treadle.mcp.prompts import ServerPrompts

ToolState = Literal["approved", "new", "changed", "removed"]


class HomeMcpStatus:
    """Implements `operations.mcp_status.McpStatus`."""

    def __init__(self, home: Home, connections: HomeMcp | None = None) -> None:
        self._home = home
        self._connections = connections

    @property
    def _approvals(self) -> HomeApprovals:
        return HomeApprovals(self._home) if self._connections is None else self._connections.approvals

    def servers(self) -> Sequence[McpServerView]:
        states = [] if self._connections is None else self._connections.states
        return [_view(entry, states) for entry in list_entries(self._home, self._approvals)]

    async def inspect(self, name: str, agent: str | None, consent: Consent = NO_CONSENT) -> McpInspection:
        approvals = self._approvals
        entry = self._find(approvals, name, agent)
        return make_inspection(entry, await _inspect(approvals, entry, consent))

    async def approve(
        self, name: str, agent: str | None, digest: str, consent: Consent = NO_CONSENT
    ) -> McpServerView:
        from treadle.home.mcp_admin import approve_server

        approvals = self._approvals
        entry = self._find(approvals, name, agent)
        found = await _inspect(approvals, entry, consent)
        if make_inspection(entry, found).digest != digest:
            raise UsageError(
                f"The MCP server `{name}` was not approved: it has changed since it was read. Read it again."
            )
        approve_server(approvals, entry, found)
        return next(each for each in self.servers() if (each.name, each.agent or "") == (entry.name, entry.agent))

    def revoke(self, name: str, agent: str | None) -> None:
        from treadle.home.mcp_admin import revoke_server

        approvals = self._approvals
        entry = self._find(approvals, name, agent)
        if not revoke_server(approvals, entry.name, entry.agent):
            raise UsageError(f"The MCP server `{name}` has no approval to revoke.")

    async def list_prompts(self, agent: AgentSpec) -> Sequence[McpPrompt]:
        return [] if self._connections is None else await self._prompts.list_prompts(agent, self._folder(agent))

    async def read_prompt(
        self, agent: AgentSpec, server: str, name: str, arguments: Mapping[str, str]
    ) -> McpPromptMessage:
        try:
            return await self._prompts.read_prompt(agent, self._folder(agent), server, name, arguments)
        except ToolError as error:
            said = str(error)
            raise UsageError(f"{said[:1].upper()}{said[1:]}") from None

    @property
    def _prompts(self) -> "ServerPrompts":
        from treadle.mcp.prompts import ServerPrompts  # few commands list prompts

        if self._connections is None:
            raise UsageError("This process has no connections to MCP servers. Open the home first.")
        return ServerPrompts(self._connections.catalog, self._connections.pool)

    def _folder(self, agent: AgentSpec) -> Path:
        return self._home.workspace_path(agent).resolve()

    def _find(self, approvals: HomeApprovals, name: str, agent: str | None) -> ServerEntry:
        """Return a server: of an agent, or of the home, or of the only agent that has one with this name. Raise
        UsageError if there is none, or if several agents have one."""
        if agent is None and name not in self._home.config().mcp_servers:
            owners = [each for each in list_entries(self._home, approvals) if each.name == name]
            if len(owners) > 1:
                agents = ", ".join(each.agent for each in owners)
                raise UsageError(f"Several agents have an MCP server `{name}`: {agents}. Name the agent.")
            if owners:
                return owners[0]
        return find_entry(self._home, name, agent or "", approvals)


async def _inspect(approvals: HomeApprovals, entry: ServerEntry, consent: Consent) -> "Inspection":
    from treadle.home.mcp_admin import inspect_server

    try:
        return await inspect_server(approvals, entry, consent=consent)
    except ToolError as error:
        said = str(error)
        raise UsageError(f"{said[:1].upper()}{said[1:]}") from None


def make_inspection(entry: ServerEntry, found: "Inspection") -> McpInspection:
    """Return what a server says about itself, with each tool compared with the approved one."""
    changes, settings = compare_tools(entry.tools, found.tools), entry.settings
    added = {str(tool["name"]) for tool in changes.added}
    before = {str(old["name"]): old for old, _ in changes.changed}
    is_known = entry.pin is not None

    def view(tool: dict[str, Any], state: ToolState) -> McpToolView:
        name = str(tool["name"])
        return McpToolView(make_tool_name(entry.name, name), state, tool, before.get(name) if is_known else None)

    def find_state(name: str) -> ToolState:
        return "new" if name in added else "changed" if name in before else "approved"

    tools = [view(tool, find_state(str(tool["name"]))) for tool in found.tools]
    gone = [view(tool, "removed") for tool in changes.removed]
    parts = [hash_entry(settings), *sorted(f"{tool['name']} {hash_tool(tool)}" for tool in found.tools)]
    return McpInspection(
        name=entry.name,
        agent=entry.agent or None,
        target=describe_target(settings),
        network=settings.network,
        title=found.title,
        protocol=found.protocol,
        seconds=round(found.seconds, 3),
        unconfined=found.confinement,
        tools=(*tools, *gone),
        digest=sha256("\n".join(parts).encode()).hexdigest(),
        workspace=None if settings.is_remote else find_access(settings, is_pinned=bool(found.contents)),
        privilege=explain_privilege(settings),
    )


def _view(entry: ServerEntry, states: Sequence[tuple[str, McpConnectionView]]) -> McpServerView:
    return make_server_view(entry, [connection for name, connection in states if name == entry.name])
