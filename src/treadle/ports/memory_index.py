"""What finding memories needs of a store: their words, and the vectors that were made of them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.identity import AgentId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind
from treadle.ports.memory import Vector


class VectorsUnavailable(Exception):
    """The store cannot compare vectors on this machine; the message says why. Words can be looked for."""


class Glance(Struct, frozen=True):
    """What there is to be found, at a glance."""

    is_empty: bool = True
    notes: tuple[Memory, ...] = ()
    """The latest journal notes, the oldest first."""
    dimensions: int | None = None
    """Of the vectors there are; None: there are none."""
    is_behind: bool = False
    """Some memories have no vector yet."""


class Near(Struct, frozen=True):
    memory: Memory
    likeness: float
    """The cosine of the angle between two vectors: 1 where they are the same."""


class Pending(Struct, frozen=True):
    """A memory that has no vector yet."""

    number: int
    memory: Memory


class MemoryIndex(Protocol):
    async def glance(self, agent_id: AgentId, embedder: str | None) -> Glance:
        """One cheap read. `embedder` is the name of the one whose vectors would be compared."""
        ...

    async def nearest(
        self, agent_id: AgentId, embedder: str, vector: Vector, limit: int, without: SessionId | None = None
    ) -> Sequence[Near]:
        """The nearest first. Nothing where the vectors there are have other dimensions. Raises
        VectorsUnavailable."""
        ...

    async def matching(
        self, agent_id: AgentId, query: str, limit: int, without: SessionId | None = None
    ) -> Sequence[Memory]:
        """Those whose words fit a query in the language of FTS5, the best first."""
        ...

    async def list(
        self, agent_id: AgentId | None = None, kind: MemoryKind | None = None, limit: int = 50
    ) -> Sequence[Memory]:
        """The newest first."""
        ...

    async def same(self, agent_id: AgentId, text: str) -> MemoryId | None:
        """The memory with this very text, but for case and white space."""
        ...


class VectorShelf(Protocol):
    """Where vectors are kept. Whoever makes them goes through the memories in the order in which they came."""

    async def pending(
        self, agent_id: AgentId, embedder: str, dimensions: int | None, limit: int
    ) -> Sequence[Pending]:
        """Memories without a vector of this embedder, the oldest first; where it is known to have other dimensions
        than the vectors there are, all."""
        ...

    async def keep(
        self, agent_id: AgentId, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        """Keep vectors of what was pending. None: there will be none for it. Vectors of other dimensions that were
        kept under this name go; a memory that was forgotten meanwhile stays so."""
        ...
