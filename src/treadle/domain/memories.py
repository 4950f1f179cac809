"""What is remembered beyond a session."""

from typing import Literal

from msgspec import Struct

from treadle.domain.ids import AgentId, Instant, RunId, SessionId
from treadle.domain.users import LOCAL_USER, UserId

MemoryId = str
"""`mem_…`."""

MemoryKind = Literal["long_term", "journal"]
MemorySource = Literal["run", "tool", "compaction", "person", "import"]
"""Where it comes from: the end of a run, the agent's own wish, what a compaction took out, a person, a file."""


class Memory(Struct, frozen=True, omit_defaults=True):
    """One thing that an agent remembers."""

    memory_id: MemoryId
    agent_id: AgentId
    kind: MemoryKind
    text: str
    created_at: Instant
    source: MemorySource = "tool"
    used_at: Instant | None = None
    """When it was last recalled, or said again."""
    uses: int = 0
    pinned: bool = False
    """It does not fade."""
    session_id: SessionId | None = None
    run_id: RunId | None = None
    owner: UserId = LOCAL_USER
    """Whose words it is made of. No other user of the agent is reminded of it, unless the agent shares memories."""


class MemoryScope(Struct, frozen=True):
    """Some of what an agent remembers: what is of one owner, or of all owners."""

    agent_id: AgentId
    owner: UserId | None
    """None: of all of them, for an agent that shares its memories (`memory.shared`) and for an administrator."""
