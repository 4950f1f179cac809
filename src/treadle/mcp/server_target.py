"""What a connection to a server is made to, and with which rights."""

from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.permissions import SandboxPolicy, WorkspaceAccess
from treadle.mcp.approval_advice import ApprovalAdvice, Approver
from treadle.mcp.pins import PinnedContent
from treadle.mcp.start_rules import find_access, names_folder


class ServerTarget(Struct, frozen=True):
    """What a connection is made to, and with which rights. Connections are shared only if all of it is equal."""

    name: str
    server: McpServerSettings
    workspace: Path
    policy: SandboxPolicy = SandboxPolicy()
    """The rights of the agent."""
    user: str = ""
    """On whose behalf its credentials are used."""
    owner: str = ""
    """The agent whose file configures the server; empty for a server of the home."""
    allows_write: bool = False
    """The approval allows the program to write the workspace although it has secrets or the network."""
    contents: tuple[PinnedContent, ...] = ()
    """Code of the program that is pinned by content."""
    approver: Approver = "command"

    @property
    def advice(self) -> ApprovalAdvice:
        """How to approve the server."""
        return ApprovalAdvice(self.name, self.owner, self.approver)

    @property
    def key(self) -> bytes:
        relevant = (
            *(self.name, self.server, str(self.workspace), self.policy, self.user, self.owner),
            *(self.allows_write, self.contents),
        )
        return msgspec.json.encode(relevant, order="sorted")

    @property
    def access(self) -> WorkspaceAccess:
        """What the program may do with the workspace."""
        return find_access(self.server, is_pinned=bool(self.contents))

    @property
    def rights(self) -> SandboxPolicy:
        """The rights of the program. The folders of the agent count as its workspace, and the network is that of
        the server's entry."""
        policy, server = self.policy, self.server
        readable, writable = list(server.readable), list(server.writable)
        match self.access:
            case "none":
                pass
            case "read":
                readable += [*policy.readable, *policy.writable]
            case "write":
                readable += policy.readable
                writable += policy.writable
        if server.cwd is not None:
            readable.append(server.cwd)
        return SandboxPolicy(policy.mode, server.network, tuple(readable), tuple(writable))

    @property
    def root(self) -> Path | None:
        """The workspace, if the server is told it as a root."""
        server = self.server
        return None if server.is_remote or self.access == "none" or names_folder(server) else self.workspace
