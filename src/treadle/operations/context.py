"""The context of a call: who calls, with which idempotency key, and the services that handlers use.

What a caller may not see does not exist for that caller: each lookup here raises the same error for something that
is hidden, deleted or was never there."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from treadle.domain.access import OWNER, Principal
from treadle.domain.errors import UnknownAgent, UnknownApproval, UnknownRun, UnknownSession, UsageError
from treadle.domain.ids import ApprovalId, Instant, RunId, SessionId
from treadle.domain.permissions import Asker
from treadle.operations.not_found import unknown_run, unknown_session

if TYPE_CHECKING:
    from pathlib import Path

    from treadle.domain.agents import AgentSpec
    from treadle.domain.events import EventData
    from treadle.domain.messages import Image
    from treadle.operations.agent_version_service import AgentVersionService
    from treadle.operations.automation import Automation
    from treadle.operations.channel_manager import ChannelManager
    from treadle.operations.mcp_status import McpStatus
    from treadle.operations.memory_service import MemoryService
    from treadle.operations.readiness import Readiness
    from treadle.operations.requested_run import ChosenAgent
    from treadle.operations.retention import RetentionService
    from treadle.operations.service import LocalService
    from treadle.operations.sign_in_service import SignInService
    from treadle.operations.skill_approvals import SkillApprovals
    from treadle.operations.system_facts import ProcessView, SystemFacts
    from treadle.operations.token_service import TokenService
    from treadle.ports.access import IdempotencyStore
    from treadle.ports.agent_files import AgentFiles
    from treadle.ports.approvals import ApprovalRecord
    from treadle.ports.evaluations import Evaluations, Suites
    from treadle.ports.file_versions import FileVersions
    from treadle.ports.journal import RunRecord
    from treadle.ports.model import ModelRequest
    from treadle.ports.overview import Overview
    from treadle.ports.sandbox import Finished
    from treadle.ports.sessions import SessionCatalog, SessionRecord
    from treadle.ports.vault import Vault


class StreamMetrics(Protocol):
    """Counts open streams and renders all metrics."""

    def stream_opened(self) -> None: ...

    def stream_closed(self) -> None: ...

    def render(self, agents: Sequence[str] | None = None) -> bytes:
        """Return the metrics as Prometheus reads them: all, or those of some agents."""
        ...


class NoMetrics:
    """Counts nothing."""

    def stream_opened(self) -> None:
        """Count nothing."""

    def stream_closed(self) -> None:
        """Count nothing."""

    def render(self, agents: Sequence[str] | None = None) -> bytes:
        return b""


class SecretUse(Protocol):
    @property
    def agent(self) -> str: ...

    @property
    def tool(self) -> str: ...


class StoredSecret(Protocol):
    """A secret without its value."""

    @property
    def name(self) -> str: ...

    @property
    def grants(self) -> Sequence[SecretUse]: ...

    @property
    def created(self) -> Instant: ...

    @property
    def changed(self) -> Instant: ...


class SecretStore(Protocol):
    """The secrets of a home. Its methods block."""

    def list(self) -> Sequence[StoredSecret]: ...

    def put(self, name: str, value: str, grants: Sequence[tuple[str, str]], forced: bool) -> StoredSecret: ...

    def remove(self, name: str) -> None: ...


class _Absent:
    """Stands for a service that a context does not have."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"this context lacks the service that has `{name}`")


_ABSENT: Any = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who calls, and the services of the home that is open. A command opens only the services that it needs."""

    principal: Principal = OWNER
    key: str | None = None
    """The idempotency key under which the journal records what the call begins."""
    cause: "EventData | None" = None
    """The event that made this process begin it, which its own run records."""
    run_id: "RunId | None" = None
    """The ID of the run that the call begins; None: a new one."""
    asks_in: Asker = "api"
    """Where the caller can be asked."""
    trace_parent: str = ""
    """The span of the caller, as a W3C `traceparent`; empty if it has none."""
    leave: Callable[[], Awaitable[None]] | None = None
    """Returns when the caller no longer waits for the response. None: the caller waits for it."""
    service: "LocalService" = _ABSENT
    sessions: "SessionCatalog" = _ABSENT
    vault: "Vault" = _ABSENT
    memory: "MemoryService" = _ABSENT
    access: "TokenService" = _ABSENT
    sign_ins: "SignInService" = _ABSENT
    address: Callable[[], str | None] = lambda: None
    """The URL of the server in this process; None if it serves no port."""
    settings: Callable[[], dict[str, Any]] = _ABSENT
    """Return the settings of the home that are in use, without secrets."""
    requests: "IdempotencyStore" = _ABSENT
    retention: "RetentionService" = _ABSENT
    file_versions: "Callable[[], FileVersions]" = _ABSENT
    automation: "Callable[[], Automation]" = _ABSENT
    agents: "AgentFiles" = _ABSENT
    versions: "Callable[[], AgentVersionService]" = _ABSENT
    evaluations: "Callable[[], Evaluations]" = _ABSENT
    suites: "Callable[[], Suites]" = _ABSENT
    watch_definitions: "Callable[[], AbstractAsyncContextManager[None]]" = nullcontext
    """Notices edited agents while the context manager is entered."""
    secrets: SecretStore = _ABSENT
    reload_secrets: Callable[[], None] = lambda: None
    """Let this process redact a secret that was just stored. Others notice it within moments."""
    now: Callable[[], Instant] = _ABSENT
    metrics: StreamMetrics = _ABSENT
    readiness: "Readiness" = _ABSENT
    overview: "Overview" = _ABSENT
    system: "SystemFacts" = _ABSENT
    list_processes: "Callable[[], Sequence[ProcessView]]" = tuple
    """Returns the processes of the server, if it has several."""
    skills: "SkillApprovals" = _ABSENT
    encode_request: "Callable[[str, ModelRequest], bytes]" = _ABSENT
    """Return the body of a request in a wire format."""
    fetch_image: "Callable[[str, int], Awaitable[Image]]" = _ABSENT
    """Return the image at a URL of the public internet, of at most this many bytes. Raises ToolError."""
    run_command: "Callable[[AgentSpec, str, float], Awaitable[Finished]]" = _ABSENT
    """Run a command in the workspace of an agent for its user, for at most so many seconds. Raises CommandError."""
    mcp: "McpStatus" = _ABSENT
    channels: "Callable[[], ChannelManager]" = _ABSENT
    home: "Path | None" = None
    """The folder with the configuration, if this process serves a home."""
    hand_over: Callable[[], None] = _ABSENT
    """Release the home to the process that requests it. Raises InvalidState if this process keeps it."""

    def with_key(self, key: str | None) -> "Context":
        return self if key == self.key else replace(self, key=key)

    def for_caller(
        self,
        principal: Principal,
        key: str | None,
        asks_in: Asker = "api",
        leave: Callable[[], Awaitable[None]] | None = None,
        trace_parent: str = "",
    ) -> "Context":
        return replace(self, principal=principal, key=key, asks_in=asks_in, leave=leave, trace_parent=trace_parent)

    def for_user(self, name: str | None) -> "Context":
        """Return the context on behalf of a user whom the caller serves; itself without a name."""
        return self if name is None else replace(self, principal=self.principal.for_user(name))

    @property
    def asker(self) -> Asker | None:
        """Where the caller can be asked about a run that it starts, if it may answer."""
        return self.asks_in if self.principal.may("approve") else None

    # ── Visibility ──

    async def visible_run(self, run_id: str) -> "RunRecord":
        """Return a run. Raises UnknownRun if the caller may not see its agent or its owner."""
        try:
            record = await self.service.run(RunId(run_id))
        except UnknownRun:
            if self.principal.sees_all:
                raise
            raise unknown_run(run_id) from None
        if not self._sees(record.agent, record.owner):
            raise unknown_run(run_id)
        return record

    async def readable_run(self, run_id: str) -> "RunRecord":
        """Return a run whose content the caller may read: with the scope read, or as the owner of the run."""
        record = await self.visible_run(run_id)
        if not self.principal.may("read") and not self.principal.owns(record.owner):
            raise unknown_run(run_id)
        return record

    async def addressed_run(self, run_id: str) -> "RunRecord":
        """Return a run that the caller may change, send words to, or take words from. A client that serves several
        people must name the one whose run it is."""
        record = await self.visible_run(run_id)
        if not self._addresses(record.owner):
            raise unknown_run(run_id)
        return record

    def addresses(self, agent: str, owner: str) -> bool:
        """Return whether `addressed_run` returns a run of this agent and owner."""
        return self._sees(agent, owner) and self._addresses(owner)

    def refuse_anonymous(self) -> None:
        """Raise UsageError if the caller serves several people and names none of them."""
        if self.principal.is_anonymous:
            raise UsageError(
                "The token serves several people, and the request names none of them. Name the user in the header "
                "X-Treadle-User."
            )

    async def visible_session(self, session_id: str) -> "SessionRecord":
        """Return a session. Raises UnknownSession if the caller may not see its agent or its owner."""
        try:
            record = await self.sessions.find(SessionId(session_id))
        except UnknownSession:
            if self.principal.sees_all:
                raise
            raise unknown_session(session_id) from None
        if record is None or not self._sees(record.agent, record.owner):
            raise unknown_session(session_id)
        return record

    async def readable_session(self, session_id: str) -> "SessionRecord":
        """Return a session whose content the caller may read: with the scope read, or as its owner."""
        record = await self.visible_session(session_id)
        if not self.principal.may("read") and not self.principal.owns(record.owner):
            raise unknown_session(session_id)
        return record

    async def addressed_session(self, session_id: str) -> "SessionRecord":
        """Return a session that the caller may change. A client that serves several people must name the one whose
        session it is."""
        record = await self.readable_session(session_id)
        if not self._addresses(record.owner):
            raise unknown_session(session_id)
        return record

    async def visible_runs_of(self, session_id: SessionId) -> "list[RunRecord]":
        """Return the runs of a session that the caller may see, in the order in which they were submitted."""
        found = await self.sessions.runs(session_id)
        return [run for run in found if self._sees(run.agent, run.owner)]

    async def open_session(self, session_id: str) -> SessionId:
        """Return the id of a session to continue or to start. Raise UnknownSession if it has runs of an agent that
        the caller may not see.

        A token that is limited to its own user, that may not read, or that serves several people and names none of
        them, continues only sessions of its user. A token that is limited to its own user cannot name a new
        session, because it would learn which ids are taken."""
        principal, requested = self.principal, SessionId(session_id)
        if principal.only_owner is not None or not principal.may("read") or principal.is_anonymous:
            known = await self.sessions.basics(requested)
            is_free = known is None and principal.only_owner is None
            if (known is None or known.owner != principal.user) and not is_free:
                raise unknown_session(session_id)
        if principal.agents is not None:
            runs = await self.sessions.runs(requested)
            if not all(principal.sees(run.agent) for run in runs):
                raise unknown_session(session_id)
        return requested

    async def visible_approval(self, approval_id: str) -> "ApprovalRecord":
        """Return an approval. Raises UnknownApproval if the caller may not see its run."""
        try:
            record = await self.service.approval(ApprovalId(approval_id))
        except UnknownApproval:
            record = None
        if record is None or not self._sees(record.agent, record.owner):
            raise UnknownApproval(
                f"There is no approval {approval_id}. `treadle approvals list` shows pending approvals."
            )
        return record

    def visible_agent(self, name: str) -> "AgentSpec":
        """Return an agent of the home. The error does not name the agents that the caller may not see."""
        try:
            if self.principal.sees(name):
                return self.agents.find(name)
        except UnknownAgent:
            pass
        raise UnknownAgent(f"No agent is called `{name}`.")

    async def choose_agent(self, reference: str) -> "ChosenAgent":
        """Return the agent that a text such as `NAME`, `NAME@7` or `NAME@candidate` names, with its version."""
        from treadle.operations.requested_run import ChosenAgent  # not needed to look at runs

        name, mark, _ = reference.partition("@")
        if not mark:
            return ChosenAgent(self.visible_agent(name))
        if self.principal.sees(name):
            return await self.versions().choose(reference)
        raise UnknownAgent(f"No agent is called `{name}`.")

    async def known_agent(self, name: str) -> str:
        """Return the name of an agent that the home has or had."""
        if self.principal.sees(name) and (name in self.agents.names() or name in await self.memory.agents()):
            return name
        raise UnknownAgent(f"No agent is called `{name}`.")

    def visible_agents(self, name: str | None) -> tuple[str, ...] | None:
        """Return the agents whose runs a list shows; None for all."""
        if name is None:
            return self.principal.agents
        return (name,) if self.principal.sees(name) else ()

    def visible_owners(self, user: str | None) -> tuple[str, ...] | None:
        """Return the owners whose runs a list shows; None for all. A user is named as the owner of the runs, or as
        the client named the user when it served them."""
        if user is None:
            only = self.principal.only_owner
            return None if only is None else (only,)
        named = dict.fromkeys((user, self.principal.for_user(user).user))
        return tuple([owner for owner in named if self.principal.sees_owner(owner)])

    def sees(self, record: "RunRecord | ApprovalRecord") -> bool:
        return self._sees(record.agent, record.owner)

    def _sees(self, agent: str, owner: str) -> bool:
        return self.principal.sees(agent) and self.principal.sees_owner(owner)

    def _addresses(self, owner: str) -> bool:
        return not self.principal.is_anonymous or owner == self.principal.user

    def resolve_signer(self, name: str = "") -> str:
        """Return the name that the journal records for a decision. A token cannot sign as someone else."""
        if self.principal.token_id is None or not name:
            return name or self.principal.name
        return f"{name} (token {self.principal.name})"
