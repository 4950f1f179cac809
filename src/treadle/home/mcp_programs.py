"""The MCP servers of the agents of a program: those that the program trusts are approved when they are first
used."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Literal

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.secret_refs import make_secret_ref
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import ServerEntry, compare_tools, make_entry, store_secrets
from treadle.mcp.entry_secrets import replace_secrets
from treadle.mcp.pins import explain_refusal, hash_entry
from treadle.ports.tool import ToolError
from treadle.vault.vault import HomeVault

Trust = bool | Literal["always"]
"""False: someone approves the server. True: the program does, when it is first used. always: whenever it has
changed, too."""
log = logging.getLogger("treadle.mcp")


class ProgramServers:
    """Registers the agents of a program, and approves their servers."""

    def __init__(self, approvals: HomeApprovals, vault: HomeVault) -> None:
        self._approvals = approvals
        self._vault = vault
        self._trust: dict[tuple[str, str], Trust] = {}
        self._checked: set[tuple[str, str, str]] = set()
        """Servers with `always` that were compared since the engine was opened, with their settings."""
        self._lock = asyncio.Lock()

    def add(self, agent: AgentSpec, trust: Mapping[str, Trust]) -> AgentSpec:
        """Register an agent. Return it with references in place of its secrets: an agent is stored with its runs.
        The secrets are stored in the vault."""
        servers = {name: self._hide_secrets(agent.name, name, each) for name, each in agent.mcp_servers.items()}
        hidden = msgspec.structs.replace(agent, mcp_servers=servers)
        self._approvals.program_agents[agent.name] = hidden
        for name in servers:
            self._trust[agent.name, name] = trust.get(name, False)
        return hidden

    def begin(self) -> None:
        """Start anew in the event loop of an engine that is opened."""
        self._lock = asyncio.Lock()
        self._checked.clear()

    async def approve_registered(self) -> None:
        """Approve the servers of all agents that are registered. One that cannot be used is logged: it is an error
        when its agent runs."""
        for name in tuple(self._approvals.program_agents):
            try:
                await self.approve([name], only_trusted=True)
            except TreadleError as error:
                log.warning("%s", error)

    async def approve(self, agents: Iterable[str], *, only_trusted: bool = False) -> None:
        """Approve the servers of these agents that the program trusts. Raise UsageError for one that is not
        approved then."""
        for agent in agents:
            spec = self._approvals.program_agents.get(agent)
            for server in () if spec is None else spec.mcp_servers:
                if self._trust[agent, server] or not only_trusted:
                    async with self._lock:
                        await self._approve_server(agent, server)

    async def _approve_server(self, agent: str, server: str) -> None:
        entry = self._find_entry(agent, server)
        trust, state = self._trust[agent, server], entry.state
        key = (agent, server, hash_entry(entry.settings))
        if state == "disabled" or (state == "approved" and (trust != "always" or key in self._checked)):
            return
        if not trust or (state == "changed" and trust != "always"):
            raise UsageError(explain_refusal(entry.settings, entry.pin, entry.advice))
        try:
            await self._pin(entry)
        except ToolError as error:
            reason = f"The MCP server `{server}` of agent `{agent}` was not approved: {error}"
            if state != "approved":
                raise UsageError(reason) from None
            log.warning("%s Its tools are those that were approved before.", reason)
        self._checked.add(key)

    async def _pin(self, entry: ServerEntry) -> None:
        """Connect to a server, and approve the tools that it offers now."""
        from treadle.home.mcp_admin import approve_server, inspect_server  # it brings the sandbox

        found = await inspect_server(self._approvals, entry)
        if entry.state == "approved" and not compare_tools(entry.tools, found.tools).any:
            return
        approve_server(self._approvals, entry, found)
        log.info("approved the MCP server %s of agent %s: %d tools", entry.name, entry.agent, len(found.tools))

    def _find_entry(self, agent: str, server: str) -> ServerEntry:
        spec = self._approvals.program_agents[agent]
        return make_entry(self._approvals, server, spec.mcp_servers[server], spec)

    def _hide_secrets(self, agent: str, server: str, settings: McpServerSettings) -> McpServerSettings:
        found: dict[str, str] = {}

        def hide(place: str, secret: str) -> str:
            name = self._make_secret_name(agent, server, place)
            found[name] = secret
            return make_secret_ref(name)

        values = msgspec.to_builtins(settings)
        hidden = replace_secrets(values, hide)
        changed = {name: value for name, value in found.items() if self._vault.value(name) != value}
        store_secrets(self._approvals.home, changed)
        return msgspec.convert(hidden, McpServerSettings) if found else settings

    def _make_secret_name(self, agent: str, server: str, place: str) -> str:
        """Return the name of a secret in the vault, which no other program on this home uses."""
        owner = sha256(f"{self._approvals.scope} {agent} {server} {place}".encode()).hexdigest()[:12]
        readable = "".join(each if each.isascii() and each.isalnum() else "_" for each in place)[:40]
        return f"MCP_{readable}_{owner}".upper()
