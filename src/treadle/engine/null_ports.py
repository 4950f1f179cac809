"""Implementations for an engine without a vault, reviewers, memory, stored results or agents."""

from collections.abc import Collection, Mapping, Sequence

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin
from treadle.domain.errors import UnknownAgent, UnknownApproval
from treadle.domain.events import RunEnd
from treadle.domain.ids import AgentId, ApprovalId, RunId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryScope
from treadle.domain.tools import ToolSpec
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.approvals import ApprovalRecord, Grant
from treadle.ports.journal import RunRecord
from treadle.ports.memory import NO_EXCLUSION, Recall, RecallExclusion
from treadle.ports.sessions import SegmentRecord, SessionBasics, SessionRecord
from treadle.ports.skills import Skill
from treadle.ports.vault import Redaction, SecretRefused, TextStream


class _PassThrough:
    """Implements `ports.vault.TextStream`."""

    def feed(self, piece: str) -> str:
        return piece

    def flush(self) -> str:
        return ""


class NoRedaction:
    """Implements `ports.vault.Redactor`."""

    is_idle = True

    def redact(self, text: str) -> Redaction:
        return Redaction(text)

    def stream(self) -> TextStream:
        return _PassThrough()


class NoVault:
    """Implements `ports.vault.Vault`."""

    redactor = NoRedaction()

    def names(self, agent: str) -> Collection[str]:
        return ()

    def read_granted_secrets(self, agent: str, tool: str) -> Mapping[str, str]:
        return {}

    def reveal(self, name: str, agent: str, tool: str) -> str:
        raise SecretRefused(f"There is no secret `{name}`: this engine has no vault.", "there is no vault")


class NoAgents:
    """Implements `ports.agents.Agents` for an engine without agents. A run can only delegate to a copy of
    itself."""

    async def get_agent(self, name: str, requested_by: AgentSpec) -> AgentSpec:
        raise UnknownAgent(f"No agent is called `{name}`: this engine knows none.")

    async def version(self, name: str) -> int | None:
        return None

    async def identity(self, name: str) -> AgentId:
        raise UnknownAgent(f"No agent is called `{name}`: this engine knows none.")


class NoApprovals:
    """Implements `ports.approvals.Approvals`."""

    async def find(self, approval_id: ApprovalId) -> ApprovalRecord:
        raise UnknownApproval(f"There is no approval {approval_id}.")

    async def list_pending(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        return ()

    async def grants(self, run_id: RunId) -> Sequence[Grant]:
        return ()

    async def revoke(self, run_id: RunId, grant: Grant) -> bool:
        return False


class NoResults:
    """Implements `ports.results.Results`."""

    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        return None

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        return None


class NoMemories:
    """Implements `ports.memory.Memories`."""

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        return Recall()

    async def find_duplicate(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        return None

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        return ()


class NoAgentContext:
    """Implements `ports.agent_context.AgentContext`."""

    def rules(self) -> str:
        return ""

    def skills(self, agent: AgentSpec) -> Sequence[Skill]:
        return ()

    def catalog(self, skills: Sequence[Skill]) -> str:
        return ""

    def workspace(self, agent: AgentSpec) -> str:
        return ""

    def notes(self, agent: AgentSpec) -> str:
        return ""

    def guidance(self, agent: AgentSpec, tools: Sequence[ToolSpec]) -> str:
        return ""

    def load(self, agent: AgentSpec, name: str, file: str | None = None) -> str:
        raise LookupError("There are no skills.")


class NoSessions:
    """Implements `ports.sessions.Sessions`."""

    async def newest(
        self,
        limit: int = 50,
        before: SessionId | None = None,
        agents: Sequence[str] | None = None,
        owner: UserId | None = None,
        *,
        children: bool = True,
        workspaces: Sequence[WorkspaceId] | None = None,
    ) -> Sequence[SessionRecord]:
        return ()

    async def basics(self, session_id: SessionId) -> SessionBasics | None:
        return None

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        return None

    async def runs(self, session_id: SessionId) -> Sequence[RunRecord]:
        return ()

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        return ()

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        return ()
