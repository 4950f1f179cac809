"""What memory search needs from a store: the words of memories, and their vectors."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.users import UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.memory import NO_EXCLUSION, RecallExclusion, Vector

Result = TypeVar("Result")


class VectorsUnavailable(Exception):
    """The store cannot compare vectors on this machine; the message gives the reason. Search by words still
    works."""


class MemoryOverview(Struct, frozen=True):
    """A summary of the memories of a scope."""

    is_empty: bool = True
    notes: tuple[Memory, ...] = ()
    """The latest journal notes, oldest first."""
    dimensions: int | None = None
    """Dimensions of the stored vectors; None if there are none."""
    is_behind: bool = False
    """Some memories have no vector yet."""


class Term(Struct, frozen=True):
    """Words that a memory must all contain, in any order, folded by `domain.text.fold_words`."""

    words: tuple[str, ...]
    begins: bool = False
    """The last word may be a prefix: `invoic` matches `invoices`."""


class MemoryHit(Struct, frozen=True):
    """A candidate of a memory search."""

    memory: Memory
    line: str
    """The folded words of the memory, with a blank before, between and after them."""
    likeness: float | None = None
    """Cosine similarity, 1 for equal vectors; None if vectors were not compared."""


class Pending(Struct, frozen=True):
    """A memory that has no vector yet."""

    number: int
    memory: Memory
    line: str = " "
    """As in `MemoryHit`."""


class MemoryView(Protocol):
    """A consistent snapshot of memories. Valid only inside `MemoryIndex.read`."""

    def read_overview(
        self, scope: MemoryScope, embedder: str | None, without: RecallExclusion = NO_EXCLUSION
    ) -> MemoryOverview:
        """Return a summary. `embedder` is the name of the embedder whose vectors would be compared."""
        ...

    def find_nearest(
        self, scope: MemoryScope, embedder: str, vector: Vector, limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        """Return memories with the closest vectors, closest first. Return nothing if the stored vectors have other
        dimensions.

        Raise VectorsUnavailable if the store cannot compare vectors."""
        ...

    def find_matching(
        self, scope: MemoryScope, terms: Sequence[Term], limit: int, without: RecallExclusion = NO_EXCLUSION
    ) -> Sequence[MemoryHit]:
        """Return memories that contain any of the terms, best first. Rare terms count for more.

        The cost does not depend on memories of other agents and owners, and is limited for those of other
        workspaces."""
        ...

    def list_unembedded(
        self, scope: MemoryScope, embedder: str, dimensions: int | None, limit: int
    ) -> Sequence[Pending]:
        """Return memories without a vector of this embedder, oldest first. The scope has no workspace.

        If the embedder is known to have other dimensions than the stored vectors, return all memories."""
        ...

    def find_same(
        self, agent_id: AgentId, owner: UserId, text: str, workspace: WorkspaceId = NO_WORKSPACE
    ) -> MemoryId | None:
        """Return the fact of this owner in this workspace with the same text, ignoring case, white space and the
        final full stop."""
        ...


class MemoryIndex(Protocol):
    async def read(self, look: Callable[[MemoryView], Result]) -> Result:
        """Call `look` with a snapshot and return its result. `look` may run in a thread; it must be short and
        change nothing."""
        ...

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


class VectorStore(Protocol):
    """Stores vectors per scope without a workspace (`MemoryScope.indexed`). The memories of a scope are indexed in
    the order in which they arrived."""

    async def keep(
        self, scope: MemoryScope, embedder: str, vectors: Sequence[tuple[Pending, Vector | None]]
    ) -> None:
        """Store vectors of pending memories. None: the memory never gets a vector.

        Stored vectors of this embedder with other dimensions are deleted, and their memories become pending again.
        Memories that were deleted in the meantime are skipped."""
        ...
