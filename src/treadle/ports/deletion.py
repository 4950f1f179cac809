"""Deleting for good: the one exception to a history that is never rewritten."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.ids import Instant, SessionId


class IdleSession(Struct, frozen=True):
    """A session as it is before it is deleted."""

    session_id: SessionId
    agent: str
    runs: int
    unfinished: int
    events: int
    first_at: Instant
    latest_at: Instant
    """When something last happened in it."""


class Tombstone(Struct, frozen=True):
    """What is left of a deleted session: nothing of what was said in it."""

    session_id: SessionId
    agent: str
    runs: int
    events: int
    memories: int
    first_at: Instant
    latest_at: Instant
    deleted_at: Instant
    deleted_by: str


class Deletions(Protocol):
    async def delete(self, session_id: SessionId, by: str) -> Sequence[Tombstone]:
        """Delete a session, and those that its runs have begun and nobody else: its runs with their events,
        deliveries, approvals and results, what was said and granted in it, and the memories that came from it. All
        of it or nothing. Raises InvalidState while one of its runs has not ended; UnknownSession where there is
        none, and where it is deleted already."""
        ...

    async def idle(self, before: Instant, agent: str | None = None) -> Sequence[IdleSession]:
        """Sessions whose runs have all ended and in which nothing has happened since, the oldest first."""
        ...

    async def prune(self, session_ids: Sequence[SessionId], before: Instant, by: str) -> Sequence[Tombstone]:
        """Delete those of these sessions that are idle still, in one transaction."""
        ...

    async def recalled(self, session_id: SessionId) -> Sequence[SessionId]:
        """Other sessions whose journals hold the text of memories that came from this one."""
        ...

    async def clear(self, before: Instant) -> int:
        """Forget the answers to requests before this moment; how many. Then let nothing that was ever deleted be
        left in the files of the database: they are written anew. Raises StoreLocked where another program keeps it
        there by reading, StoreFull where there is no room."""
        ...


class DeletionArchive(Protocol):
    """Where events are kept that are about to be deleted."""

    def add(self, events: Sequence[Event]) -> None: ...

    def add_title(self, session_id: SessionId, title: str) -> None:
        """Add the title that a caller gave a session, before its events."""
        ...

    def settle(self) -> None:
        """What was added is safe when this returns."""
        ...


class DatabaseFacts(Struct, frozen=True):
    """What a database holds, to tell a whole copy from one that is not."""

    version: int
    """How many migrations it has had."""
    agents: int
    runs: int
    unfinished: int
    events: int
