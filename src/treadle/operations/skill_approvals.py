"""Protocol of the skills of a home, with the values that it returns."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct


class SkillView(Struct, frozen=True):
    """A skill."""

    name: str
    origin: Literal["home", "workspace", "treadle"]
    state: Literal["approved", "changed", "new", "available", "broken", "missing"]
    """changed: since it was approved. available: it comes with Treadle, and approving it copies it into the home.
    missing: it is approved, but its folder is gone."""
    description: str = ""
    reason: str = ""
    """Why it is broken."""
    path: str = ""
    """Its folder. Empty for callers without the scope admin."""
    tools: tuple[str, ...] = ()
    """The tools that an agent gets with it."""
    acting_tools: tuple[str, ...] = ()
    """Those of them that do more than read."""
    unknown_tools: tuple[str, ...] = ()
    """Names that it requests and that no tool has."""
    asks_for: tuple[str, ...] = ()
    """All tools that it requests. A skill of a workspace gets none of them."""
    sha256: str = ""


class SkillFileView(Struct, frozen=True):
    """A file of a skill."""

    path: str
    bytes: int
    executable: bool
    text: str | None
    """Null: it is not text."""


class SkillDetail(SkillView, frozen=True):
    """A skill with its files."""

    files: tuple[SkillFileView, ...] = ()


class SkillApprovals(Protocol):
    """The skills of a home. Its methods block."""

    def list(self) -> Sequence[SkillView]: ...

    def show(self, name: str) -> SkillDetail: ...

    def approve(self, name: str, sha256: str) -> SkillView:
        """Approve the content that has this hash. Raise UsageError if the skill has another content now."""
        ...

    def revoke(self, name: str) -> None: ...
