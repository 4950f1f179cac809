"""Sessions: their runs in order, and the segments of the conversation that the model saw."""

import json
import re
from collections.abc import Sequence
from typing import Generic, Protocol

from msgspec import Struct

from treadle.domain.events import RunEnd, SegmentReason
from treadle.domain.graphemes import make_printable_line, truncate
from treadle.domain.ids import Instant, RunId, SegmentId, SessionId, Time
from treadle.domain.modes import ApprovalMode
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import UNKNOWN_WORKSPACE, Workspace, WorkspaceId
from treadle.ports.journal import RunRecord

TITLE_LIMIT = 80
_FIRST_TEXT = re.compile(rb'"(?:text|asked)":"((?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*)')


class SegmentFields(Struct, Generic[Time], frozen=True):
    """A conversation that a session continued with."""

    segment_id: SegmentId
    parent: SegmentId
    run_id: RunId
    """The run that opened it."""
    reason: SegmentReason
    messages: int
    """How many messages it began with."""
    opened_at: Time


class SegmentRecord(SegmentFields[Instant], frozen=True):
    """A segment as it is stored."""


class SessionFields(Struct, Generic[Time], frozen=True):
    """A session as lists show it."""

    session_id: SessionId
    agent: str
    """The agent of its first run."""
    first_run: RunId
    runs: int
    unfinished: int
    first_at: Time
    latest_at: Time
    """When its first and its latest run were submitted."""
    segments: int
    """How often it continued with another conversation, such as a compacted one."""
    owner: UserId = LOCAL_USER
    """The user of all its runs."""
    title: str = ""
    """The title that it was given, or the beginning of its first message."""
    model: str | None = None
    """The model that was chosen for it; null: its runs use the model of the agent."""
    mode: ApprovalMode | None = None
    """How much the agent may do without asking; null: its approval rules decide alone."""


class SessionRecord(SessionFields[Instant], frozen=True):
    """A session as it is stored."""

    workspace: Workspace = UNKNOWN_WORKSPACE
    """The workspace of its latest run."""


class SessionBasics(Struct, frozen=True):
    """What a message needs to know of the session that it continues."""

    owner: UserId
    agent: str
    """The name of the agent of its first run."""
    model: str | None
    workspace: Workspace
    """The workspace of its latest run."""
    latest_run: RunId
    mode: ApprovalMode | None = None


def make_title(text: str) -> str:
    """Return a text as a title: one line of printable characters, at most 80 of them."""
    return truncate(make_printable_line(text), TITLE_LIMIT)


def make_default_title(beginning: bytes | None) -> str:
    """Return the default title of a session from the first bytes of its `user_message` or `run_forked` event.

    The bytes are redacted JSON, as the journal stores them. A store reads only so much of them, however long the
    message is."""
    found = None if beginning is None else _FIRST_TEXT.search(beginning)
    if found is None:
        return ""
    return make_title(json.loads(f'"{found[1].decode("utf-8", "ignore")}"', strict=False))


class Sessions(Protocol):
    async def newest(
        self,
        limit: int = 50,
        before: SessionId | None = None,
        agents: Sequence[str] | None = None,
        owner: UserId | None = None,
        *,
        children: bool = True,
        workspaces: Sequence[WorkspaceId] | None = None,
    ) -> Sequence[SessionRecord]:
        """Return sessions, latest run first, optionally only those after `before` in this order, of these agents,
        of this owner, not begun by a parent run, or of these workspaces."""
        ...

    async def basics(self, session_id: SessionId) -> SessionBasics | None:
        """Return the owner, the agent, the chosen model, the workspace and the latest run of a session, or None
        if it has no runs."""
        ...

    async def find(self, session_id: SessionId) -> SessionRecord | None:
        """Return a session, or None if there is none. Raise SessionDeleted if it was deleted."""
        ...

    async def runs(self, session_id: SessionId) -> Sequence[RunRecord]:
        """Return its runs in the order in which they were created."""
        ...

    async def ends(self, session_id: SessionId) -> Sequence[RunEnd]:
        """Return how its finished runs ended, in the same order."""
        ...

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        """Return its segments in the order in which they were opened, without the first one."""
        ...


class SessionCatalog(Sessions, Protocol):
    """Session operations for callers, in addition to those that the engine uses."""

    async def rename(self, session_id: SessionId, title: str) -> None:
        """Set the title of a session. Does nothing if there is no such session."""
        ...

    async def set_model(self, session_id: SessionId, model: str | None) -> None:
        """Set the model of a session; None: the model of its agent. Does nothing if there is no such session."""
        ...

    async def set_mode(self, session_id: SessionId, mode: ApprovalMode | None) -> None:
        """Set the mode with which the next runs of a session begin. Does nothing if there is no such session."""
        ...
