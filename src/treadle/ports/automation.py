"""Storage of schedules, inbound webhooks and webhooks."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.ids import EventId, Instant, RunId
from treadle.domain.schedules import Schedule, ScheduleId
from treadle.domain.webhooks import DeadLetter, HookId, InboundWebhook, Webhook, WebhookId


class TickResult(Struct, frozen=True):
    """The result of one tick of a schedule."""

    due_at: Instant
    run_id: RunId | None = None
    """The run that the tick started, if any."""
    problem: str = ""


class Schedules(Protocol):
    """Every tick goes through `begin` and `finish`, so a process that dies between them neither repeats nor loses
    it."""

    async def keep(self, schedule: Schedule) -> None:
        """Add or update a schedule. The progress of its tick and its latest run are not changed."""
        ...

    async def list(self) -> Sequence[Schedule]:
        """Return all schedules, oldest first."""
        ...

    async def remove(self, schedule_id: ScheduleId) -> bool:
        """Return False if there is no such schedule."""
        ...

    async def begin(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> Schedule | None:
        """Claim a tick and set the next one. Return None if it was claimed, or the schedule changed, in the
        meantime."""
        ...

    async def finish(self, schedule_id: ScheduleId, fired: TickResult) -> None: ...


class InboundWebhooks(Protocol):
    async def add(self, hook: InboundWebhook) -> None: ...

    async def find(self, hook_id: HookId) -> InboundWebhook | None: ...

    async def list(self) -> Sequence[InboundWebhook]:
        """Return all inbound webhooks, oldest first."""
        ...

    async def remove(self, hook_id: HookId) -> bool:
        """Return False if there is no such inbound webhook."""
        ...


class Webhooks(Protocol):
    async def add(self, webhook: Webhook) -> None: ...

    async def list(self) -> Sequence[Webhook]:
        """Return all webhooks, oldest first."""
        ...

    async def remove(self, webhook_id: WebhookId) -> bool:
        """Remove a webhook and its dead letters. Return False if there is no such webhook."""
        ...

    async def move(self, webhook: Webhook, letter: DeadLetter | None = None) -> None:
        """Store how far a webhook has progressed and, in the same transaction, an event that it gave up on."""
        ...


class DeadLetters(Protocol):
    async def list_letters(self, webhook_id: WebhookId) -> Sequence[DeadLetter]:
        """Return the dead letters of a webhook, oldest first."""
        ...

    async def count_letters(self) -> Mapping[WebhookId, int]:
        """Return the number of dead letters of each webhook that has some."""
        ...

    async def queue(self, webhook_id: WebhookId, event_id: EventId | None) -> int:
        """Mark one or all dead letters for another attempt, and enable the webhook. Return how many are marked."""
        ...

    async def settle(self, letter: DeadLetter, reason: str | None) -> None:
        """Record the result of another attempt: delivered (None), or the reason why it failed."""
        ...


class WebhookSecrets(Protocol):
    """Signing secrets. They are stored in the vault and granted to no agent."""

    async def put(self, name: str, value: str) -> None: ...

    def value(self, name: str) -> str | None: ...

    async def remove(self, name: str) -> None:
        """Remove a secret. Does nothing if it is gone already."""
        ...
