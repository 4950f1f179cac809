"""What finding memories needs of a store: their words, and the vectors that were made of them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import UserId
from treadle.ports.memory import NO_EXCLUSION, RecallExclusion, Vector

Result = TypeVar("Result")


class VectorsUnavailable(Exception):
    """The store cannot compare vectors on this machine; the message says why. Words can be looked for."""


class MemoryOverview(Struct, frozen=True):
    """What there is to be found, at a glance."""

    is_empty: bool = True
    notes: tuple[Memory, ...] = ()
    """The latest journal notes, the oldest first."""
    dimensions: int | None = None
    """Of the vectors there are; None: there are none."""
    is_behind: bool = False
    """Some memories have no vector yet."""


class Term(Struct, frozen=True):
    """Words that a memory must have all of, in whatever order, folded as `domain.words.folded` does."""

    words: tuple[str, ...]
    begins: bool = False
    """The last of them may go on: `invoic` is in `invoices`."""


class MemoryHit(Struct, frozen=True):
    """A memory that may fit."""

    memory: Memory
    line: str
    """Its words, folded, with one blank before, between and behind them."""
    likeness: float | None = None
    """The cosine of the angle between two vectors: 1 where they are the same. None: they were not compared."""


class Pending(Struct, frozen=True):
    """A memory that has no vector yet."""

    number: int
    memory: Memory
    line: str = " "
    """As in `Hit`."""


class MemoryView(Protocol):
    """What there is at one moment. Only for use within `MemoryIndex.read`."""

    def glance(
        self, scope: MemoryScope, embedder: str | None, without: RecallExclusion = NO_EXCLUSION
    ) -> MemoryOverview:
        """`embedder` is the name of the one whose vectors would be compared."""
        ...

    def nearest(
        self, scope: MemoryScope, embedder: str, vector: Vector, limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        """The nearest first. Nothing where the vectors there are have other dimensions. Raises
        VectorsUnavailable."""
        ...

    def matching(
        self, scope: MemoryScope, terms: Sequence[Term], limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        """Those that have any of the terms, the best first: rare terms count for more. What is outside of the scope
        costs nothing."""
        ...

    def pending(self, scope: MemoryScope, embedder: str, dimensions: int | None, limit: int) -> Sequence[Pending]:
        """Memories without a vector of this embedder, the oldest first; where it is known to have other dimensions
        than the vectors there are, all."""
        ...

    def same(self, agent_id: AgentId, owner: UserId, text: str) -> MemoryId | None:
        """The fact of this owner with this very text, but for case, white space and the full stop."""
        ...


class MemoryIndex(Protocol):
    async def read(self, look: Callable[[MemoryView], Result]) -> Result:
        """Look at memories. It may be done in a thread, so that whatever `look` does holds nobody up: it must be
        short, and must not change anything."""
        ...

    async def list(
        self,
        agent_id: AgentId | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        owner: UserId | None = None,
    ) -> Sequence[Memory]:
        """The newest first; None: of all agents, of all kinds, of all owners."""
        ...


class VectorStore(Protocol):
    """Where vectors are kept, for each scope its own. Whoever makes them goes through the memories of a scope in
    the order in which they came."""

    async def keep(
        self, scope: MemoryScope, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        """Keep vectors of what was pending. None: there will be none for it. Vectors of other dimensions that were
        kept under this name go, and their memories are pending again; a memory that was forgotten meanwhile stays
        so."""
        ...
