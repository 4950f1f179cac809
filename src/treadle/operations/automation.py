"""Protocols of what an open engine does automatically: schedules, inbound webhooks and webhooks. The `automation`
package implements them."""

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
from treadle.operations.schemas import Ticket
from treadle.operations.webhooks import DeadLetterView, NewWebhook, NewWebhookView, WebhookView


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


class SignedMessage(Struct, frozen=True):
    """A signed request to an inbound webhook."""

    webhook_id: str
    timestamp: str
    signature: str
    body: bytes


class InboundWebhookManager(Protocol):
    async def add(self, request: NewHook, owner: UserId = LOCAL_USER) -> NewHookView:
        """Add an inbound webhook. The owner is the user of its runs."""
        ...

    async def list(self) -> Sequence[HookView]: ...

    async def remove(self, hook_id: HookId) -> None: ...

    async def rotate(self, hook_id: HookId) -> NewHookView:
        """Create a new secret. The previous secret stops working at once."""
        ...


class InboundWebhookHandler(Protocol):
    async def receive(self, hook_id: HookId, signed: SignedMessage) -> Ticket | None:
        """Start a run. Return None if there is no such inbound webhook or the signature is wrong or too old. Raise
        InvalidState for a message that was received before."""
        ...


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


@dataclass(frozen=True, slots=True)
class Automation:
    """The schedules, inbound webhooks and webhooks of an open engine."""

    schedules: ScheduleManager
    hooks: InboundWebhookManager
    receiving: InboundWebhookHandler
    webhooks: WebhookManager
    run_in_background: Callable[[], AbstractAsyncContextManager[None]]
    """While it is entered, schedules fire and webhooks are sent."""
