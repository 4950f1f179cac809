"""What is done by itself, as it is asked for and shown: schedules, hooks that others send to, webhooks that events
are sent to. Who keeps it up is this process, or the one that owns the home."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from treadle.domain.ids import EventId, RunId, SessionId
from treadle.domain.schedules import ScheduleId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.webhooks import HookId, WebhookId
from treadle.operations.submissions import Said, Ticket

LONGEST_NAME = 100
AgentName = Annotated[str, Meta(min_length=1, max_length=64)]
SessionName = Annotated[str, Meta(min_length=1, max_length=200)]


# ── Schedules ──────────────────────────────────────────────────────────────────────────────────────


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentName
    message: Said
    every: float | str
    """Seconds, text such as 15m, or a cron expression of five fields."""
    zone: str = "UTC"
    """The time zone of a cron expression."""
    session_id: SessionName | None = None
    """Go on in this session; without it each run begins one of its own."""


class ScheduleView(Struct, frozen=True):
    schedule_id: ScheduleId
    agent: str
    message: str
    every: float | str
    zone: str
    anchor: datetime
    """Where an interval is counted from."""
    session_id: SessionId | None
    is_heartbeat: bool
    """It stands in the file of the agent, and is changed there."""
    paused: bool
    next_at: datetime | None
    fired_at: datetime | None
    run_id: RunId | None
    """The latest run."""
    problem: str
    """Why the latest tick started no run."""
    owner: UserId = LOCAL_USER
    """The user its runs are for: who made it."""


class ScheduleKeeping(Protocol):
    async def add(self, wanted: NewSchedule, owner: UserId = LOCAL_USER) -> ScheduleView:
        """The owner is the user that its runs are for."""
        ...

    async def list(self) -> Sequence[ScheduleView]: ...

    async def remove(self, schedule_id: ScheduleId) -> None: ...

    async def pause(self, schedule_id: ScheduleId) -> ScheduleView: ...

    async def resume(self, schedule_id: ScheduleId) -> ScheduleView:
        """From the next tick on; those that passed meanwhile are not made up for."""
        ...


# ── Hooks ──────────────────────────────────────────────────────────────────────────────────────────


class NewHook(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
    agent: AgentName
    message: Said
    """With places such as {{payload.issue.title}}."""
    session: SessionName | None = None
    """The name of the session, with places too; without it each message begins one of its own."""


class HookView(Struct, frozen=True):
    hook_id: HookId
    name: str
    agent: str
    message: str
    session: str | None
    created_at: datetime
    path: str
    """Where to send to, on this server."""
    owner: UserId = LOCAL_USER
    """The user its runs are for: who made it."""


class NewHookView(HookView, frozen=True, kw_only=True):
    secret: str
    """What the sender signs with; shown this once."""


class Signed(Struct, frozen=True):
    """What was sent to a hook."""

    webhook_id: str
    timestamp: str
    signature: str
    body: bytes


class HookKeeping(Protocol):
    async def add(self, wanted: NewHook, owner: UserId = LOCAL_USER) -> NewHookView:
        """The owner is the user that its runs are for."""
        ...

    async def list(self) -> Sequence[HookView]: ...

    async def remove(self, hook_id: HookId) -> None: ...

    async def rotate(self, hook_id: HookId) -> NewHookView:
        """Another secret; the one before is worth nothing from now on."""
        ...


class HookReceiving(Protocol):
    async def receive(self, hook_id: HookId, signed: Signed) -> Ticket | None:
        """Start a run. None: there is no such hook, or whoever sent it has not signed it for that, lately. Raises
        InvalidState for what was received before."""
        ...


# ── Webhooks ───────────────────────────────────────────────────────────────────────────────────────


class NewWebhook(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    events: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)] = ("*",)
    """Names, or globs of names, of types of events."""
    agents: Annotated[tuple[AgentName, ...], Meta(min_length=1, max_length=1000)] | None = None
    """Only of runs of these; without it, of all."""
    most_attempts: Annotated[int, Meta(ge=1, le=100)] | None = None
    """After so many an event is given up; without it, after three days."""


class WebhookView(Struct, frozen=True):
    webhook_id: WebhookId
    url: str
    events: tuple[str, ...]
    agents: tuple[str, ...] | None
    most_attempts: int | None
    created_at: datetime
    delivered_at: datetime | None
    attempts: int
    """Of the event that comes next; those that failed."""
    retry_at: datetime | None
    problem: str
    disabled: bool
    """The receiver has answered that it is gone (410); `retry` tries again."""


class NewWebhookView(WebhookView, frozen=True, kw_only=True):
    secret: str
    """What its messages are signed with; shown this once."""


class DeadLetterView(Struct, frozen=True):
    event_id: EventId
    run_id: RunId
    sequence: int
    type: str
    attempts: int
    reason: str
    died_at: datetime
    queued: bool
    """It is about to be tried again."""


class WebhookKeeping(Protocol):
    async def add(self, wanted: NewWebhook) -> NewWebhookView: ...

    async def list(self) -> Sequence[WebhookView]: ...

    async def remove(self, webhook_id: WebhookId) -> None: ...

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        """What was given up, the oldest first."""
        ...

    async def retry(self, webhook_id: WebhookId, event_id: EventId | None = None) -> int:
        """Try what was given up again, one event or all; how many they are. One that was disabled goes on."""
        ...


@dataclass(frozen=True, slots=True)
class Automation:
    """What an open engine does by itself, and for whoever sends to its hooks."""

    schedules: ScheduleKeeping
    hooks: HookKeeping
    receiving: HookReceiving
    webhooks: WebhookKeeping
    at_work: Callable[[], AbstractAsyncContextManager[None]]
    """While it is entered schedules fire and webhooks are sent."""
