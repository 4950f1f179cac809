"""What is asked of memory over the wire."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.memories import MemoryKind
from treadle.domain.users import LOCAL_USER, LONGEST_USER, UserId


class Pinning(Struct, frozen=True, forbid_unknown_fields=True):
    pinned: bool = True
    """False: let it fade again."""


class Remembered(Struct, frozen=True, forbid_unknown_fields=True):
    """What a command that attaches has an agent remember."""

    agent: str
    text: str
    kind: MemoryKind = "long_term"
    pinned: bool = False
    user: UserId = LOCAL_USER


class Brought(Struct, frozen=True, forbid_unknown_fields=True):
    """What a command that attaches has read from a file of memories."""

    data: bytes
    agent: str | None
    known_agents: tuple[str, ...]
    user: UserId | None = None


class AssignBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Which memories are given to which user: those that fit all that is not null."""

    user: Annotated[str, Meta(min_length=1, max_length=LONGEST_USER)]
    """Who owns them from now on."""
    memory_ids: Annotated[tuple[str, ...], Meta(min_length=1, max_length=10_000)] | None = None
    agent: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    from_user: Annotated[str, Meta(min_length=1, max_length=LONGEST_USER)] | None = None
    """Who owns them now."""
