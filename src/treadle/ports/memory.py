"""Memory: what agents remember beyond a session, found again by meaning or by its words.

What a run saves comes to the store as an event (`memory_saved`, `journal_written`), in the transaction of that
event, so that a memory is kept exactly once, whatever dies. Vectors are an index beside it that is made later: a
memory without one is found by its words."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.events import MemoryDegraded, RecalledBy
from treadle.domain.ids import AgentId, Instant, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import UserId

Vector = Sequence[float]


class EmbeddingFailed(Exception):
    """The embedder did not answer; the message says why, for a person."""


class Embedder(Protocol):
    """Makes vectors of texts: near each other where the meanings are."""

    @property
    def name(self) -> str:
        """Vectors of another name are not comparable."""
        ...

    @property
    def dimensions(self) -> int | None:
        """None: only its first answer tells."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector for each text, all of the same dimensions. Raises EmbeddingFailed."""
        ...


class FoundMemory(Struct, frozen=True):
    memory: Memory
    score: float
    """Between 0 and 1; the higher, the better it fits. Memories that are not pinned fade."""
    by: RecalledBy


class RecallExclusion(Struct, frozen=True):
    """What is not wanted of what could be recalled."""

    ids: frozenset[MemoryId] = frozenset()
    session: SessionId | None = None
    since: Instant = 0.0
    """Memories of this session that were made then or later: they stand in its conversation."""


NO_EXCLUSION = RecallExclusion()


class Recall(Struct, frozen=True):
    """What was found for a text."""

    found: tuple[FoundMemory, ...] = ()
    """The best first."""
    notes: tuple[Memory, ...] = ()
    """The latest journal notes, the oldest first."""
    by: RecalledBy = "text"
    degraded: MemoryDegraded | None = None
    """Set where an embedder should have been asked and could not be."""


class Memories(Protocol):
    """What the engine and the tools use of memory. `embedder` is the agent's setting: auto, none, local, or
    provider/model-id."""

    async def recall(
        self, scope: MemoryScope, text: str, limit: int, embedder: str, without: RecallExclusion = NO_EXCLUSION
    ) -> Recall:
        """What fits the text, and the latest notes; nothing where nothing fits well. Where the scope is all owners,
        what several of them have said alike is found once. Never raises for an embedder that fails."""
        ...

    async def find_duplicate(self, agent_id: AgentId, owner: UserId, text: str) -> MemoryId | None:
        """The fact of this owner with this very text, but for case, white space and the full stop."""
        ...

    async def latest(self, scope: MemoryScope, limit: int) -> Sequence[Memory]:
        """The newest first."""
        ...


class Assignment(Struct, frozen=True):
    """Which memories are given to which owner: those that fit all that is not None."""

    owner: UserId
    """The new one."""
    memory_ids: tuple[MemoryId, ...] | None = None
    agent_id: AgentId | None = None
    before: UserId | None = None
    """The owner that they have now."""


class Assigned(Struct, frozen=True):
    moved: int = 0
    merged: int = 0
    """Facts that the new owner had already: its own stays, and counts as used as often as both."""


class MemoryKeeper(Protocol):
    """What people do with memories, outside of any run."""

    async def list(
        self,
        agent_id: AgentId | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        owner: UserId | None = None,
    ) -> Sequence[Memory]:
        """The newest first; None: of all agents, of all kinds, of all owners."""
        ...

    async def find(self, memory_id: MemoryId) -> Memory | None: ...

    async def add(self, memories: Sequence[Memory]) -> int:
        """Keep these; how many are new. One whose id is there already is not, nor a fact whose text its owner
        has already with this agent."""
        ...

    async def pin(self, memory_id: MemoryId, pinned: bool) -> bool: ...

    async def forget(self, memory_ids: Sequence[MemoryId]) -> int:
        """Delete for good, with index and vector; how many there were."""
        ...

    async def assign(self, wanted: Assignment) -> Assigned:
        """Give memories to another owner, all or none. Their vectors are made anew for the new one."""
        ...
