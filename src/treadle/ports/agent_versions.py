"""The stores of agent versions, of their labels, and of the skills that processes share."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.agent_versions import AgentLabel, AgentVersion
from treadle.domain.ids import Instant


class AgentVersions(Protocol):
    async def append(self, version: AgentVersion) -> bool:
        """Store a version whose number follows the latest one. Return False if that number is taken."""
        ...

    async def find(self, agent: str, number: int) -> AgentVersion | None: ...

    async def latest(self, agent: str) -> AgentVersion | None: ...

    async def latest_of_all(self) -> Sequence[AgentVersion]:
        """Return the latest version of each agent, deletions included."""
        ...

    async def history(self, agent: str, before: int | None, limit: int) -> Sequence[AgentVersion]:
        """Return versions, the newest first: those before a number, or all."""
        ...

    async def labels(self, agent: str) -> Sequence[AgentLabel]: ...

    async def set_label(self, label: AgentLabel) -> None:
        """Store a label, or move it."""
        ...

    async def remove_label(self, agent: str, label: str) -> bool:
        """Remove a label. Return False if there was none."""
        ...


class SharedSkill(Struct, frozen=True):
    """An approved skill that all processes on a database share."""

    name: str
    sha256: str
    """The hash of its files. Empty: its approval was revoked."""
    files: bytes
    at: Instant
    author: str


class SharedSkills(Protocol):
    async def skills(self) -> Sequence[SharedSkill]:
        """Return all skills that are or were shared."""
        ...

    async def put_skill(self, skill: SharedSkill) -> None:
        """Store a skill in place of an earlier content."""
        ...


class SharedDefinitions(AgentVersions, SharedSkills, Protocol):
    """What the processes on a database can share of their homes."""
