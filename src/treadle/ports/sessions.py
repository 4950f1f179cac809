"""Sessions: the sequence of their runs, and the lineage of what the model was shown of them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.events import RunEnd, SegmentReason
from treadle.domain.ids import Instant, RunId, SegmentId, SessionId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.journal import RunRecord


class SegmentRecord(Struct, frozen=True):
    segment_id: SegmentId
    parent: SegmentId
    run_id: RunId
    """The run that opened it."""
    reason: SegmentReason
    messages: int
    """How many messages it began with."""
    opened_at: Instant


class SessionRecord(Struct, frozen=True):
    """A session as lists show it."""

    session_id: SessionId
    agent: str
    """The name of the agent of its first run."""
    first_run: RunId
    runs: int
    unfinished: int
    first_at: Instant
    latest_at: Instant
    """When its first and its latest run were asked for."""
    segments: int
    """How often it has gone on with another conversation."""
    owner: UserId = LOCAL_USER
    """The user that all its runs are for."""


class Sessions(Protocol):
    async def newest(
        self,
        limit: int = 50,
        before: SessionId | None = None,
        agents: Sequence[str] | None = None,
        owner: UserId | None = None,
    ) -> Sequence[SessionRecord]:
        """Those with the latest run first: those after that one in this order, those that these agents have begun,
        and those of this owner, where that is asked for."""
        ...

    async def owner(self, session_id: SessionId) -> UserId | None:
        """The owner of a session; None where it has no run."""
        ...

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        """None where there is none. Raises SessionDeleted for one that was deleted."""
        ...

    async def runs(self, session_id: SessionId) -> Sequence[RunRecord]:
        """In the order in which they were asked for."""
        ...

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        """How its runs ended that have, in the same order."""
        ...

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        """In the order in which they were opened; without the one that it began with."""
        ...
