"""Schedules, inbound webhooks and webhooks on SQLite."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.domain.ids import EventId, Instant
from treadle.domain.schedules import Schedule, ScheduleId, Timing
from treadle.domain.webhooks import DeadLetter, HookId, InboundWebhook, Webhook, WebhookId
from treadle.ports.automation import TickResult
from treadle.stores.sqlite.connection import SQL, Value
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter

_encode = msgspec.json.Encoder().encode


class SqliteSchedules:
    """Implements `ports.automation.Schedules`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def keep(self, schedule: Schedule) -> None:
        timing = schedule.timing
        values = (
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
        await _execute(self._writer, "keep_schedule", values)

    async def list(self) -> Sequence[Schedule]:
        return await self._writer.read(lambda db: [_to_schedule(row) for row in db.execute(SQL["schedules"])])

    async def remove(self, schedule_id: ScheduleId) -> bool:
        return await _execute(self._writer, "remove_schedule", (schedule_id,))

    async def begin(self, schedule: Schedule, due_at: Instant, next_at: Instant | None) -> Schedule | None:
        since = None if schedule.next_at == due_at else schedule.next_at
        values = (due_at, since, next_at, schedule.schedule_id, schedule.next_at)
        if not await _execute(self._writer, "begin_tick", values):
            return None
        return replace(schedule, firing_at=due_at, firing_since=since, next_at=next_at)

    async def finish(self, schedule_id: ScheduleId, fired: TickResult) -> None:
        await _execute(self._writer, "finish_tick", (fired.due_at, fired.run_id, fired.problem, schedule_id))


class SqliteHooks:
    """Implements `ports.automation.InboundWebhooks`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def add(self, hook: InboundWebhook) -> None:
        await _execute(self._writer, "insert_hook", msgspec.structs.astuple(hook))

    async def find(self, hook_id: HookId) -> InboundWebhook | None:
        row = await self._writer.read(lambda db: db.execute(SQL["hook"], (hook_id,)).fetchone())
        return None if row is None else InboundWebhook(*row)

    async def list(self) -> Sequence[InboundWebhook]:
        return await self._writer.read(lambda db: [InboundWebhook(*row) for row in db.execute(SQL["hooks"])])

    async def remove(self, hook_id: HookId) -> bool:
        return await _execute(self._writer, "remove_hook", (hook_id,))


class SqliteWebhooks:
    """Implements `ports.automation.Webhooks` and `DeadLetters`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def add(self, webhook: Webhook) -> None:
        values = (
            webhook.webhook_id,
            webhook.url,
            _text(webhook.events),
            None if webhook.agents is None else _text(webhook.agents),
            webhook.created_at,
            webhook.position,
            webhook.most_attempts,
        )
        await _execute(self._writer, "insert_webhook", values)

    async def list(self) -> Sequence[Webhook]:
        return await self._writer.read(lambda db: [_to_webhook(row) for row in db.execute(SQL["webhooks"])])

    async def remove(self, webhook_id: WebhookId) -> bool:
        def work(transaction: Transaction) -> bool:
            transaction.db.execute(SQL["remove_dead_letters"], (webhook_id,))
            return transaction.db.execute(SQL["remove_webhook"], (webhook_id,)).fetchone() is not None

        return await self._writer.write(work, _do_nothing, patient=False)

    async def move(self, webhook: Webhook, letter: DeadLetter | None = None) -> None:
        values = (
            webhook.position,
            webhook.attempts,
            webhook.first_failed_at,
            webhook.retry_at,
            webhook.delivered_at,
            webhook.problem,
            webhook.disabled,
            webhook.webhook_id,
        )

        def work(transaction: Transaction) -> None:
            is_there = transaction.db.execute(SQL["move_webhook"], values).fetchone() is not None
            if letter is not None and is_there:
                row = letter.webhook_id, *msgspec.structs.astuple(letter)[:7]
                transaction.db.execute(SQL["insert_dead_letter"], row)

        await self._writer.write(work, _do_nothing, patient=True)

    # ── Dead letters ──

    async def list_letters(self, webhook_id: WebhookId) -> Sequence[DeadLetter]:
        return await self._writer.read(
            lambda db: [_to_dead_letter(row) for row in db.execute(SQL["dead_letters"], (webhook_id,))]
        )

    async def count_letters(self) -> Mapping[WebhookId, int]:
        return await self._writer.read(lambda db: dict(db.execute(SQL["count_dead_letters"]).fetchall()))

    async def queue(self, webhook_id: WebhookId, event_id: EventId | None) -> int:
        def work(transaction: Transaction) -> int:
            transaction.db.execute(SQL["enable_webhook"], (webhook_id,))
            return len(transaction.db.execute(SQL["queue_dead_letters"], (webhook_id, event_id)).fetchall())

        return await self._writer.write(work, _do_nothing, patient=False)

    async def settle(self, letter: DeadLetter, reason: str | None) -> None:
        if reason is None:
            await _execute(self._writer, "bury_dead_letter", (letter.webhook_id, letter.event_id))
        else:
            await _execute(self._writer, "kill_dead_letter", (reason, letter.webhook_id, letter.event_id))


async def _execute(writer: SqliteWriter, name: str, values: Sequence[Value]) -> bool:
    """Run one statement in a transaction, and return whether it returned a row."""

    def work(transaction: Transaction) -> bool:
        return transaction.db.execute(SQL[name], values).fetchone() is not None

    return await writer.write(work, _do_nothing, patient=False)


def _text(value: object) -> str:
    return _encode(value).decode()


def _to_schedule(row: Any) -> Schedule:
    schedule_id, agent, message, every, zone, anchor, next_at, session_id, is_heartbeat, paused, *rest = row
    return Schedule(
        ScheduleId(schedule_id),
        agent,
        message,
        Timing(msgspec.json.decode(every), zone, anchor),
        next_at,
        session_id,
        bool(is_heartbeat),
        bool(paused),
        *rest,
    )


def _to_webhook(row: Any) -> Webhook:
    webhook_id, url, events, agents, *rest = row
    created_at, position, most_attempts, attempts, first_failed_at, retry_at, delivered_at, problem, disabled = rest
    return Webhook(
        webhook_id=WebhookId(webhook_id),
        url=url,
        events=tuple(msgspec.json.decode(events)),
        agents=None if agents is None else tuple(msgspec.json.decode(agents)),
        created_at=created_at,
        position=position,
        most_attempts=most_attempts,
        attempts=attempts,
        first_failed_at=first_failed_at,
        retry_at=retry_at,
        delivered_at=delivered_at,
        problem=problem,
        disabled=bool(disabled),
    )


def _to_dead_letter(row: Any) -> DeadLetter:
    webhook_id, *values, queued = row
    return DeadLetter(*values, queued=bool(queued), webhook_id=webhook_id)


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""
