"""Schedules, inbound webhooks and webhooks on PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.domain.ids import EventId, Instant
from treadle.domain.schedules import Schedule, ScheduleId, Timing
from treadle.domain.webhooks import DeadLetter, HookId, InboundWebhook, Webhook, WebhookId
from treadle.ports.automation import TickResult
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow

_encode = msgspec.json.Encoder().encode


class PostgresSchedules:
    """Implements `ports.automation.Schedules`. If several processes begin the same tick, one of them gets it."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def keep(self, schedule: Schedule) -> None:
        timing = schedule.timing
        await self._database.rows(
            "keep_schedule",
            schedule.schedule_id,
            schedule.agent,
            schedule.message,
            _text(timing.every),
            timing.zone,
            timing.anchor,
            schedule.next_at,
            schedule.session_id,
            schedule.is_heartbeat,
            schedule.paused,
            schedule.owner,
            schedule.deliver,
        )

    async def list(self) -> Sequence[Schedule]:
        return [_to_schedule(row) for row in await self._database.rows("schedules")]

    async def remove(self, schedule_id: ScheduleId) -> bool:
        return await self._database.row("remove_schedule", schedule_id) is not None

    async def begin(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> Schedule | None:
        """May return None although the tick was begun, if the connection was lost. The next poll resumes it, like a
        tick of a process that died."""
        since = None if schedule.next_at == due_at else schedule.next_at
        values = (schedule.schedule_id, schedule.next_at, due_at, since, next_at)
        if await self._database.row("begin_tick", *values) is None:
            return None
        return replace(schedule, firing_at=due_at, firing_since=since, next_at=next_at)

    async def finish(self, schedule_id: ScheduleId, fired: TickResult) -> None:
        await self._database.rows("finish_tick", schedule_id, fired.due_at, fired.run_id, fired.problem)


class PostgresHooks:
    """Implements `ports.automation.InboundWebhooks`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, hook: InboundWebhook) -> None:
        await self._database.rows("add_hook", *msgspec.structs.astuple(hook))

    async def find(self, hook_id: HookId) -> InboundWebhook | None:
        found = await self._database.row("hooks", hook_id)
        return None if found is None else _to_inbound_webhook(found)

    async def list(self) -> Sequence[InboundWebhook]:
        return [_to_inbound_webhook(row) for row in await self._database.rows("hooks", None)]

    async def remove(self, hook_id: HookId) -> bool:
        return await self._database.row("remove_hook", hook_id) is not None


class PostgresWebhooks:
    """Implements `ports.automation.Webhooks` and `DeadLetters`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, webhook: Webhook) -> None:
        await self._database.rows(
            "add_webhook",
            webhook.webhook_id,
            webhook.url,
            _text(webhook.events),
            None if webhook.agents is None else _text(webhook.agents),
            webhook.created_at,
            webhook.position,
            webhook.most_attempts,
        )

    async def list(self) -> Sequence[Webhook]:
        return [_to_webhook(row) for row in await self._database.rows("webhooks")]

    async def remove(self, webhook_id: WebhookId) -> bool:
        return await self._database.row("remove_webhook", webhook_id) is not None

    async def move(self, webhook: Webhook, letter: DeadLetter | None = None) -> None:
        values = (
            webhook.webhook_id,
            webhook.position,
            webhook.attempts,
            webhook.first_failed_at,
            webhook.retry_at,
            webhook.delivered_at,
            webhook.problem,
            webhook.disabled,
        )
        if letter is None:
            await self._database.rows("move_webhook", *values, patient=True)
        else:
            rest = msgspec.structs.astuple(letter)[:7]
            await self._database.rows("move_webhook_past", *values, *rest, patient=True)

    # ── Dead letters ──

    async def list_letters(self, webhook_id: WebhookId) -> Sequence[DeadLetter]:
        return [_to_dead_letter(row) for row in await self._database.rows("dead_letters", webhook_id)]

    async def count_letters(self) -> Mapping[WebhookId, int]:
        return {row[0]: row[1] for row in await self._database.rows("count_dead_letters")}

    async def queue(self, webhook_id: WebhookId, event_id: EventId | None) -> int:
        return len(await self._database.rows("queue_dead_letters", webhook_id, event_id))

    async def settle(self, letter: DeadLetter, reason: str | None) -> None:
        which = letter.webhook_id, letter.event_id
        if reason is None:
            await self._database.rows("bury_dead_letter", *which)
        else:
            await self._database.rows("kill_dead_letter", *which, reason, letter.attempts + 1)


def _text(value: object) -> str:
    return _encode(value).decode()


def _to_schedule(row: PostgresRow) -> Schedule:
    schedule_id, agent, message, every, zone, anchor, *rest = row
    next_at, session_id, is_heartbeat, paused, firing_at, firing_since, fired_at, run_id, problem, *last = rest
    return Schedule(
        schedule_id,
        unescape_nul(agent),
        unescape_nul(message),
        Timing(msgspec.json.decode(every), zone, anchor),
        next_at,
        session_id,
        is_heartbeat,
        paused,
        firing_at,
        firing_since,
        fired_at,
        run_id,
        unescape_nul(problem),
        *last,
    )


def _to_inbound_webhook(row: PostgresRow) -> InboundWebhook:
    hook_id, name, agent, message, session, created_at, owner, scheme = row
    place = None if session is None else unescape_nul(session)
    return InboundWebhook(
        hook_id=hook_id,
        name=unescape_nul(name),
        agent=unescape_nul(agent),
        message=unescape_nul(message),
        session=place,
        created_at=created_at,
        owner=owner,
        scheme=scheme,
    )


def _to_webhook(row: PostgresRow) -> Webhook:
    webhook_id, url, events, agents, created_at, position, *rest = row
    most_attempts, attempts, first_failed_at, retry_at, delivered_at, problem, disabled = rest
    return Webhook(
        webhook_id=webhook_id,
        url=unescape_nul(url),
        events=_to_names(events),
        agents=None if agents is None else _to_names(agents),
        created_at=created_at,
        position=position,
        most_attempts=most_attempts,
        attempts=attempts,
        first_failed_at=first_failed_at,
        retry_at=retry_at,
        delivered_at=delivered_at,
        problem=unescape_nul(problem),
        disabled=disabled,
    )


def _to_names(listed: str) -> tuple[Any, ...]:
    return tuple(msgspec.json.decode(listed))


def _to_dead_letter(row: PostgresRow) -> DeadLetter:
    webhook_id, event_id, run_id, sequence, type_, attempts, reason, died_at, queued = row
    return DeadLetter(
        webhook_id=webhook_id,
        event_id=event_id,
        run_id=run_id,
        sequence=sequence,
        type=type_,
        attempts=attempts,
        reason=unescape_nul(reason),
        died_at=died_at,
        queued=queued,
    )
