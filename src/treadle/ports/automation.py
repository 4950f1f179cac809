"""Schedules and webhooks, as they are kept."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.ids import EventId, Instant, RunId
from treadle.domain.schedules import Schedule, ScheduleId
from treadle.domain.webhooks import DeadLetter, HookId, InboundWebhook, Webhook, WebhookId


class TickResult(Struct, frozen=True):
    """What became of a tick."""

    due_at: Instant
    run_id: RunId | None = None
    """The run that it started; None: none."""
    problem: str = ""


class Schedules(Protocol):
    """Every tick goes through `begin` and `finish`, so that whoever dies between them has done nothing twice and
    left nothing undone."""

    async def keep(self, schedule: Schedule) -> None:
        """Add it, or change what it is; how far it has come with a tick and its latest run stay."""
        ...

    async def list(self) -> Sequence[Schedule]:
        """The oldest first."""
        ...

    async def remove(self, schedule_id: ScheduleId) -> bool:
        """Whether there was one."""
        ...

    async def begin(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> Schedule | None:
        """See to a tick, and go on with the next afterwards. None: it was seen to, or changed, meanwhile."""
        ...

    async def finish(self, schedule_id: ScheduleId, fired: TickResult) -> None: ...


class InboundWebhooks(Protocol):
    async def add(self, hook: InboundWebhook) -> None: ...

    async def find(self, hook_id: HookId) -> InboundWebhook | None: ...

    async def list(self) -> Sequence[InboundWebhook]:
        """The oldest first."""
        ...

    async def remove(self, hook_id: HookId) -> bool:
        """Whether there was one."""
        ...


class Webhooks(Protocol):
    async def add(self, webhook: Webhook) -> None: ...

    async def list(self) -> Sequence[Webhook]:
        """The oldest first."""
        ...

    async def remove(self, webhook_id: WebhookId) -> bool:
        """With its dead letters. Whether there was one."""
        ...

    async def move(self, webhook: Webhook, letter: DeadLetter | None = None) -> None:
        """Keep how far it has come; and, in the same transaction, an event that is given up."""
        ...


class DeadLetters(Protocol):
    async def of(self, webhook_id: WebhookId) -> Sequence[DeadLetter]:
        """The oldest first."""
        ...

    async def queue(self, webhook_id: WebhookId, event_id: EventId | None) -> int:
        """Mark one of them, or all, to be tried again; enable the webhook. How many there are."""
        ...

    async def settle(self, letter: DeadLetter, reason: str | None) -> None:
        """It was tried again: taken (None), or not, and why."""
        ...


class WebhookSecrets(Protocol):
    """What signs. It is kept in the vault, and granted to no agent."""

    async def put(self, name: str, value: str) -> None: ...

    def value(self, name: str) -> str | None: ...

    async def remove(self, name: str) -> None:
        """It may be gone already."""
        ...
