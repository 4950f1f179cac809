"""Memories as they are shown, exported and imported."""

from datetime import datetime

from msgspec import Struct

from treadle.domain.memories import Memory, MemoryKind, MemorySource
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.operations.schemas import maybe

MAX_CHARACTERS = 8000


class MemoryLine(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A memory as it is shown and exported: with the name of its agent, and times that people can read."""

    text: str
    agent: str | None = None
    kind: MemoryKind = "long_term"
    created_at: datetime | None = None
    memory_id: str | None = None
    source: MemorySource = "import"
    pinned: bool = False
    used_at: datetime | None = None
    uses: int = 0
    session_id: str | None = None
    run_id: str | None = None
    owner: UserId = LOCAL_USER
    """The user who said what it is made of."""
    workspace: WorkspaceId = NO_WORKSPACE
    """The workspace that it belongs to. Empty: none, or the caller is not an administrator."""


class Imported(Struct, frozen=True):
    new: int
    known: int
    """Those that were left out, because they are there already."""


def line(memory: Memory, agent: str | None) -> MemoryLine:
    return MemoryLine(
        text=memory.text,
        agent=agent or memory.agent_id,
        kind=memory.kind,
        created_at=maybe(memory.created_at),
        memory_id=memory.memory_id,
        source=memory.source,
        pinned=memory.pinned,
        used_at=maybe(memory.used_at),
        uses=memory.uses,
        session_id=memory.session_id,
        run_id=memory.run_id,
        owner=memory.owner,
        workspace=memory.workspace,
    )
