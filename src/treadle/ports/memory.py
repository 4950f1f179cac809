"""Memory: what agents remember across sessions, found by meaning or by words.

What a run saves reaches the store as an event (`memory_saved`, `journal_written`), in the transaction of that
event, so it is stored exactly once even if a process dies. Vectors are a separate index that is built later. A
memory without a vector is found by its words."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.events import MemoryDegraded, RecalledBy
from treadle.domain.ids import AgentId, Instant, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId

Vector = Sequence[float]


class EmbeddingFailed(Exception):
    """The embedder returned no vectors. The message gives the reason, for users."""


class Embedder(Protocol):
    """Turns texts into vectors that are close to each other if the texts have similar meanings."""

    @property
    def name(self) -> str:
        """Vectors of embedders with different names are not comparable."""
        ...

    @property
    def dimensions(self) -> int | None:
        """None: unknown until the first response."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per text, all with the same dimensions. Raise EmbeddingFailed."""
        ...


class FoundMemory(Struct, frozen=True):
    memory: Memory
    score: float
    """From 0 to 1, higher is better. The score of memories that are not pinned decreases with age."""
    by: RecalledBy


class RecallExclusion(Struct, frozen=True):
    """Memories to leave out of a recall."""

    ids: frozenset[MemoryId] = frozenset()
    session: SessionId | None = None
    since: Instant = 0.0
    """Leave out memories of `session` from this time on: its conversation already contains them."""


NO_EXCLUSION = RecallExclusion()


class Recall(Struct, frozen=True):
    """The memories found for a text."""

    found: tuple[FoundMemory, ...] = ()
    """Best match first."""
    notes: tuple[Memory, ...] = ()
    """The latest journal notes, oldest first."""
    by: RecalledBy = "text"
    degraded: MemoryDegraded | None = None
    """Set if an embedder should have been used and could not be."""


class Memories(Protocol):
    """What the engine and the tools use of memory. `embedder` is the agent's setting: `auto`, `none`, `local` or
    `provider/model-id`."""

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        """Return the memories that match the text well, and the latest notes.

        If the scope covers several owners or workspaces, the same fact from several of them is returned once. Does
        not raise if an embedder fails."""
        ...

    async def find_duplicate(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        """Return the fact of this owner in this workspace with the same text, ignoring case, white space and the
        final full stop."""
        ...

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        """Return the newest memories, newest first."""
        ...


class Assignment(Struct, frozen=True):
    """Which memories to assign to which owner or workspace: those that match every other field that is not None."""

    owner: UserId | None = None
    """The new owner; None: each keeps its owner."""
    memory_ids: tuple[MemoryId, ...] | None = None
    agent_id: AgentId | None = None
    before: UserId | None = None
    """The current owner."""
    workspace: WorkspaceId | None = None
    """The new workspace; None: each keeps its workspace."""
    before_workspace: WorkspaceId | None = None
    """The current workspace. `NO_WORKSPACE`: only memories without one."""


class Assigned(Struct, frozen=True):
    moved: int = 0
    merged: int = 0
    """Facts that the new owner already had in the workspace. Its own copy stays, with the use counts of both
    added."""


class MemoryKeeper(Protocol):
    """Memory operations of users, outside of any run."""

    async def list(
        self,
        agent_id: AgentId | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        owner: UserId | None = None,
        workspace: WorkspaceId | None = None,
    ) -> Sequence[Memory]:
        """Return memories, newest first. None means all agents, kinds, owners or workspaces."""
        ...

    async def find(self, memory_id: MemoryId) -> Memory | None: ...

    async def add(self, memories: Sequence[Memory]) -> int:
        """Store memories and return how many were new.

        A memory is skipped if its id exists, or if it is a fact with a text that its owner already has with this
        agent in its workspace."""
        ...

    async def pin(self, memory_id: MemoryId, pinned: bool) -> bool: ...

    async def forget(self, memory_ids: Sequence[MemoryId]) -> int:
        """Delete memories permanently, with their index entries and vectors. Return how many there were."""
        ...

    async def assign(self, assignment: Assignment) -> Assigned:
        """Assign memories to another owner or workspace, all or none. Their vectors are computed again."""
        ...


class KnownAgents(Protocol):
    """The agents that a store knows."""

    async def agents(self) -> Mapping[str, AgentId]: ...

    async def agent(self, name: str, proposed: AgentId) -> AgentId: ...
