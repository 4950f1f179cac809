"""Protocols of what an open engine does automatically: schedules, inbound webhooks and webhooks, with the values
that they take and return. The `automation` package implements them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from treadle.domain.ids import EventId, RunId, SessionId
from treadle.domain.schedules import MIN_INTERVAL_SECONDS, ScheduleId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.webhooks import DeadLetterFields, HookFields, HookId, SignatureScheme, WebhookFields, WebhookId
from treadle.operations.schemas import AgentName, Said, SessionName, Ticket

MAX_HOOK_NAME_CHARACTERS = 100
HookSecret = Annotated[str, Meta(min_length=16, max_length=512)]
"""The secret of an inbound webhook that its sender chose."""

# ── Schedules ──


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentName
    message: Said
    every: Annotated[float, Meta(extra_json_schema={"minimum": MIN_INTERVAL_SECONDS})] | str
    """Seconds, text such as 15m, or a cron expression of five fields."""
    zone: str = "UTC"
    """The time zone of a cron expression."""
    session_id: SessionName | None = None
    """The session that every run continues. Default: a new session for each run."""
    deliver: str = ""
    """The channel and recipient that the answers are sent to, such as `telegram:alice`."""


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
    """The schedule is defined in the file of the agent and is changed there."""
    paused: bool
    next_at: datetime | None
    fired_at: datetime | None
    run_id: RunId | None
    """The latest run."""
    problem: str
    """Why the latest tick started no run."""
    owner: UserId = LOCAL_USER
    """The user of its runs: its creator."""
    deliver: str = ""
    """Where the answers are sent; empty for nowhere."""
    upcoming: tuple[datetime, ...] = ()
    """The next ticks, at most five. None while it is paused."""


class ScheduleManager(Protocol):
    async def add(self, request: NewSchedule, owner: UserId = LOCAL_USER) -> ScheduleView:
        """Add a schedule. The owner is the user of its runs."""
        ...

    async def list(self) -> Sequence[ScheduleView]: ...

    async def remove(self, schedule_id: ScheduleId) -> None: ...

    async def pause(self, schedule_id: ScheduleId) -> ScheduleView: ...

    async def resume(self, schedule_id: ScheduleId) -> ScheduleView:
        """Continue with the next tick. Ticks that passed while it was paused are skipped."""
        ...


# ── Inbound webhooks ──


class NewHook(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=MAX_HOOK_NAME_CHARACTERS)]
    agent: AgentName
    message: Said
    """With placeholders such as {{payload.issue.title}}."""
    session: SessionName | None = None
    """The name of the session, with placeholders. Without it, each message starts a new session."""
    scheme: SignatureScheme = "standard"
    """How the sender signs: `standard` (Standard Webhooks), `github`, `gitlab`, `stripe` or `slack`."""
    secret: HookSecret | None = None
    """The secret that the sender signs with, if the sender chose it. Default: a new one."""


class HookView(HookFields[datetime], frozen=True, kw_only=True):
    path: str
    """Where to send to, on this server."""


class NewHookView(HookView, frozen=True, kw_only=True):
    secret: str
    """The secret that the sender signs with. It is shown only once."""


class InboundWebhookManager(Protocol):
    async def add(self, request: NewHook, owner: UserId = LOCAL_USER) -> NewHookView:
        """Add an inbound webhook. The owner is the user of its runs."""
        ...

    async def list(self) -> Sequence[HookView]: ...

    async def remove(self, hook_id: HookId) -> None: ...

    async def rotate(self, hook_id: HookId, secret: str | None = None) -> NewHookView:
        """Replace the secret, by default with a new one. The previous secret stops working at once."""
        ...


class SignedMessage(Struct, frozen=True):
    """A signed request to an inbound webhook."""

    headers: Mapping[str, str]
    """Headers by their names in lower case."""
    body: bytes


class Challenge(Struct, frozen=True):
    """The answer to a request with which a sender sets up its webhook."""

    challenge: str


class InboundWebhookHandler(Protocol):
    async def receive(self, hook_id: HookId, signed: SignedMessage) -> Ticket | Challenge | None:
        """Start a run. Return the run that a message started when it was received before, and None if there is no
        such inbound webhook or the signature is wrong or too old."""
        ...


# ── Webhooks ──


class NewWebhook(Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=2000, extra_json_schema={"pattern": "^https?://[^/?#]"})]
    events: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, max_length=100)] = ("*",)
    """Names, or globs of names, of types of events."""
    agents: Annotated[tuple[AgentName, ...], Meta(min_length=1, max_length=1000)] | None = None
    """Only of runs of these; without it, of all."""
    most_attempts: Annotated[int, Meta(ge=1, le=100)] | None = None
    """The number of attempts after which an event is given up. Default: it is retried for three days."""


class WebhookView(WebhookFields[datetime], frozen=True):
    """A webhook, without its secret."""


class NewWebhookView(WebhookView, frozen=True, kw_only=True):
    secret: str
    """What its messages are signed with; shown this once."""


class DeadLetterView(DeadLetterFields[datetime], frozen=True):
    """An event that was given up."""


class WebhookManager(Protocol):
    async def add(self, request: NewWebhook) -> NewWebhookView: ...

    async def list(self) -> Sequence[WebhookView]: ...

    async def remove(self, webhook_id: WebhookId) -> None: ...

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        """Return the events that were given up, oldest first."""
        ...

    async def retry(self, webhook_id: WebhookId, event_id: EventId | None = None) -> int:
        """Retry one event that was given up, or all; return how many. Enables a disabled webhook again."""
        ...


# ── All of them ──


@dataclass(frozen=True, slots=True)
class Automation:
    """The schedules, inbound webhooks and webhooks of an open engine."""

    schedules: ScheduleManager
    hooks: InboundWebhookManager
    receiving: InboundWebhookHandler
    webhooks: WebhookManager
    run_in_background: Callable[[], AbstractAsyncContextManager[None]]
    """While it is entered, schedules fire and webhooks are sent."""
