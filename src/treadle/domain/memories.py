"""What agents remember beyond a session."""

from typing import Literal

from msgspec import Struct

from treadle.domain.excerpts import Excerpt
from treadle.domain.ids import AgentId, Instant, RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId

MemoryId = str
"""`mem_…`."""

MemoryKind = Literal["long_term", "journal"]
MemorySource = Literal["run", "tool", "compaction", "person", "import"]
"""Where a memory comes from: the end of a run, the agent's own request, a compaction, a person, a file."""


class Memory(Struct, frozen=True, omit_defaults=True):
    """One memory of an agent."""

    memory_id: MemoryId
    agent_id: AgentId
    kind: MemoryKind
    text: str
    created_at: Instant
    source: MemorySource = "tool"
    used_at: Instant | None = None
    """When it was last recalled or repeated."""
    uses: int = 0
    pinned: bool = False
    """Its score does not decrease with age."""
    session_id: SessionId | None = None
    run_id: RunId | None = None
    owner: UserId = LOCAL_USER
    """The user whose words it is made of. No other user of the agent recalls it, unless the agent shares
    memories."""
    workspace: WorkspaceId = NO_WORKSPACE
    """The workspace of the run that saved it. Empty: none, so only agents with `memory.scope: agent` recall it."""


class ShownMemory(Struct, frozen=True, omit_defaults=True, gc=False):
    """A memory in a text that lists memories."""

    memory_id: MemoryId
    created_at: Instant | None = None
    """Null: it has no date."""
    excerpt: Excerpt | None = None
    """The part of the text that shows it."""


def describe_recall(count: int) -> str:
    """Return what every surface says about recalled memories."""
    return f"recalled {count} note{'' if count == 1 else 's'}"


class MemoryScope(Struct, frozen=True):
    """A part of an agent's memories: of one owner or of all, in one workspace or in all."""

    agent_id: AgentId
    owner: UserId | None
    """None for all, for an agent that shares its memories (`memory.shared`) and for an administrator."""
    workspace: WorkspaceId | None = None
    """None for all (`memory.scope`)."""

    @property
    def indexed(self) -> "MemoryScope":
        """The scope whose vectors are indexed together: that of all workspaces."""
        return self if self.workspace is None else MemoryScope(self.agent_id, self.owner)
