"""Sessions: the sequence of their runs, and the lineage of what the model was shown of them."""

import json
import re
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.events import RunEnd, SegmentReason
from treadle.domain.ids import Instant, RunId, SegmentId, SessionId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.journal import RunRecord

TITLE_LIMIT = 80
_FIRST_TEXT = re.compile(rb'"(?:text|asked)":"((?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*)')


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
    title: str = ""
    """The title that a caller gave it, or the beginning of its first message."""


def title_of(text: str) -> str:
    """Return a text as a title: one line of printable characters, at most 80 of them."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= TITLE_LIMIT else f"{line[: TITLE_LIMIT - 1].rstrip()}…"


def default_title(beginning: bytes | None) -> str:
    """Return the title of a session from the first bytes of its `user_message` event, or of `run_forked`, as the
    journal stores them: JSON, redacted. A store reads that much of it and no more, however long the message is."""
    found = None if beginning is None else _FIRST_TEXT.search(beginning)
    if found is None:
        return ""
    return title_of(json.loads(f'"{found[1].decode("utf-8", "ignore")}"', strict=False))


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


class SessionCatalog(Sessions, Protocol):
    """What callers use of a store, besides what the engine reads."""

    async def rename(self, session_id: SessionId, title: str) -> None:
        """Give a session a title. Does nothing where there is no such session."""
        ...
