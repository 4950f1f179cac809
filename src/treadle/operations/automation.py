"""What an open engine does without being asked: schedules, inbound webhooks, webhooks. The `automation` package
implements these protocols."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from treadle.domain.ids import EventId
from treadle.domain.schedules import ScheduleId
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.webhooks import HookId, WebhookId
from treadle.operations.inbound_webhooks import HookView, NewHook, NewHookView
from treadle.operations.schedules import NewSchedule, ScheduleView
from treadle.operations.submissions import Ticket
from treadle.operations.webhooks import DeadLetterView, NewWebhook, NewWebhookView, WebhookView


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
        """Start a run. Return None if there is no such inbound webhook or the signature is wrong or too old. Raise
        InvalidState for a message that was received before."""
        ...


class WebhookKeeping(Protocol):
    async def add(self, wanted: NewWebhook) -> NewWebhookView: ...

    async def list(self) -> Sequence[WebhookView]: ...

    async def remove(self, webhook_id: WebhookId) -> None: ...

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        """What was given up, the oldest first."""
        ...

    async def retry(self, webhook_id: WebhookId, event_id: EventId | None = None) -> int:
        """Retry one event that was given up, or all; return how many. Enables a disabled webhook again."""
        ...


@dataclass(frozen=True, slots=True)
class Automation:
    """The schedules, inbound webhooks and webhooks of an open engine."""

    schedules: ScheduleKeeping
    hooks: HookKeeping
    receiving: HookReceiving
    webhooks: WebhookKeeping
    at_work: Callable[[], AbstractAsyncContextManager[None]]
    """While it is entered schedules fire and webhooks are sent."""
