"""Protocol of the MCP servers of a home, with the values that it returns."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import NO_CONSENT, Consent, McpConnectionView, McpPrompt, McpPromptMessage
from treadle.domain.permissions import WorkspaceAccess

ApprovalState = Literal["approved", "changed", "new", "disabled"]
"""changed: its entry in the configuration is not the one that was approved. new: it was never approved."""


class McpServerView(Struct, frozen=True):
    """A configured MCP server."""

    name: str
    agent: str | None
    """The agent whose file configures it; null for a server of the home."""
    transport: Literal["stdio", "http"]
    state: ApprovalState
    tools: tuple[str, ...]
    """The approved tools, by the names under which agents use them."""
    connections: tuple[McpConnectionView, ...]
    target: str = ""
    """Its command line or its address. Secrets are references to the vault."""


class McpToolView(Struct, frozen=True):
    """A tool as its server describes it. All of it is untrusted."""

    name: str
    """The name under which agents use it."""
    state: Literal["approved", "new", "changed", "removed"]
    """Compared with the approved tools."""
    tool: dict[str, Any]
    """The raw object that the server sent; for a removed tool, the one that was approved."""
    before: dict[str, Any] | None = None
    """The raw object that was approved, for a changed tool."""


class McpInspection(Struct, frozen=True):
    """What a server says about itself now."""

    name: str
    agent: str | None
    target: str
    network: bool
    """Whether the program may use the network."""
    title: str
    protocol: str
    seconds: float
    """From the start to the list of its tools."""
    unconfined: str
    """Why the program ran without a sandbox; empty if it did not."""
    tools: tuple[McpToolView, ...]
    digest: str
    """What an approval refers to: the settings of the server and all of its tools."""
    workspace: WorkspaceAccess | None = None
    """What the program may do with the folders of agents; null for a server with an address."""
    privilege: str = ""
    """What the program has besides: secrets, or the network."""


class McpStatus(Protocol):
    """The MCP servers of a home, and the connections of this process to them."""

    def servers(self) -> Sequence[McpServerView]:
        """Return the configured servers. Nothing is connected for it."""
        ...

    async def inspect(self, name: str, agent: str | None, consent: Consent = NO_CONSENT) -> McpInspection:
        """Connect to a server and compare its tools with the approved ones. Raise UsageError if it cannot be
        used."""
        ...

    async def approve(
        self, name: str, agent: str | None, digest: str, consent: Consent = NO_CONSENT
    ) -> McpServerView:
        """Approve what an inspection with this digest found. Raise UsageError if the server has changed since."""
        ...

    async def list_prompts(self, agent: AgentSpec) -> Sequence[McpPrompt]:
        """Return the prompts of the approved servers of an agent that can be connected."""
        ...

    async def read_prompt(
        self, agent: AgentSpec, server: str, name: str, arguments: Mapping[str, str]
    ) -> McpPromptMessage:
        """Return a prompt as a message. Raise UsageError if its server cannot be used."""
        ...

    def revoke(self, name: str, agent: str | None) -> None:
        """Remove the approval of a server. Raise UsageError if it has none."""
        ...
