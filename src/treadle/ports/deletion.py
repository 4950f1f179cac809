"""Permanent deletion of sessions: the one exception to the rule that history is never rewritten."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.ids import Instant, SessionId


class IdleSession(Struct, frozen=True):
    """A session that can be deleted."""

    session_id: SessionId
    agent: str
    runs: int
    unfinished: int
    events: int
    first_at: Instant
    latest_at: Instant
    """Time of its latest event."""


class Tombstone(Struct, frozen=True):
    """What remains of a deleted session. It holds none of its text."""

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
        """Delete a session, and the sessions that only its runs started, in one transaction.

        Deletes runs, events, deliveries, approvals, results, the conversation, grants, and memories that came from
        the session. Raise InvalidState if one of its runs has not ended, UnknownSession if it does not exist or is
        deleted already."""
        ...

    async def idle(self, before: Instant, agent: str | None = None) -> Sequence[IdleSession]:
        """Return the sessions without unfinished runs and without events since `before`, oldest first."""
        ...

    async def prune(self, session_ids: Sequence[SessionId], before: Instant, by: str) -> Sequence[Tombstone]:
        """Delete those of these sessions that are still idle, in one transaction."""
        ...

    async def find_recalling_sessions(self, session_id: SessionId) -> Sequence[SessionId]:
        """Return the other sessions whose journals contain the text of memories from this session."""
        ...

    async def clear(self, before: Instant) -> int:
        """Delete stored responses from before this time, then rewrite the database files so that they hold no
        deleted data.

        Return the number of deleted responses. Raise StoreLocked if another program is reading the database,
        StoreFull if there is not enough disk space."""
        ...


class DeletionArchive(Protocol):
    """Receives the events of sessions that are about to be deleted."""

    def add(self, events: Sequence[Event]) -> None: ...

    def add_title(self, session_id: SessionId, title: str) -> None:
        """Add the title that a caller gave a session, before its events."""
        ...

    def settle(self) -> None:
        """Make everything that was added durable before returning."""
        ...


class DatabaseFacts(Struct, frozen=True):
    """Counts that tell a complete copy of a database from an incomplete one."""

    version: int
    """Number of migrations that were applied."""
    agents: int
    runs: int
    unfinished: int
    events: int
