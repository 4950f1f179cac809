"""Sends events to webhooks: at least once, in commit order for each webhook, and each at its own pace.

The position of a webhook is stored after an event was accepted. A process that dies between the two sends the event
again with the same id, so the receiver can detect the duplicate."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from treadle.automation.destinations import LocalDestination, VettedResolver, describe_refusal, explain_local_host
from treadle.automation.inbound_webhooks import secret_name
from treadle.automation.signing import build_signature_headers
from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.errors import StoreError, UnknownRun
from treadle.domain.events import EventData, WebhookDelivered, WebhookFailed
from treadle.domain.ids import Instant, RunId
from treadle.domain.labels import NO_LABELS, Labels
from treadle.domain.webhooks import MAX_DELAY_SECONDS, DeadLetter, Webhook, WebhookId, retry_delay
from treadle.operations.service import LocalService
from treadle.ports.automation import DeadLetters, Webhooks, WebhookSecrets
from treadle.ports.clock import Clock

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
POLL_INTERVAL_SECONDS = 5.0
"""How often to check whether a retry is due, because the clock may be set."""
MAX_UNSAVED_EVENTS = 1000
"""Up to this many unwanted events may be read again after a restart."""
HTTP_GONE = 410
MAX_KNOWN_LABELS = 1000
SEQUENCE_HEADER = "treadle-sequence"

Live = Callable[[Origin, int, EventData], None]
Tasks = dict[WebhookId, asyncio.Task[None]]


class DeliveryRefused(Struct, frozen=True):
    """Why an event was not accepted."""

    reason: str
    gone: bool = False
    """The receiver wants no more events."""


class WebhookSender:
    def __init__(
        self,
        webhooks: Webhooks,
        letters: DeadLetters,
        service: LocalService,
        secrets: WebhookSecrets,
        live: Live,
        clock: Clock,
        chance: Callable[[], float],
        time_of_day: Callable[[], Instant],
        poll_interval: float = POLL_INTERVAL_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
        allow_local: bool = False,
    ) -> None:
        self._webhooks = webhooks
        self._letters = letters
        self._service = service
        self._secrets = secrets
        self._live = live
        self._clock = clock
        self._chance = chance
        self._time_of_day = time_of_day
        self._poll_interval = poll_interval
        self._timeout_seconds = timeout_seconds
        self._allow_local = allow_local
        self._labels: dict[RunId, Labels] = {}
        """The labels of the runs of recent events. They never change."""
        self._changed = asyncio.Event()
        self._send_tasks: Tasks = {}
        self._retry_tasks: Tasks = {}

    def wake(self) -> None:
        """Wake the sender because a webhook changed."""
        self._changed.set()

    async def work(self) -> None:
        """Send events, with a task for each webhook, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        connector = aiohttp.TCPConnector(resolver=None if self._allow_local else VettedResolver())
        async with aiohttp.ClientSession(
            timeout=timeout, trust_env=False, auto_decompress=False, connector=connector
        ) as session:
            try:
                while True:
                    self._changed.clear()
                    try:
                        await self._sync_tasks(session)
                    except StoreError as error:
                        logger.error("webhooks: %s", error)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._poll_interval):
                            await self._changed.wait()
            finally:
                for tasks in (self._send_tasks, self._retry_tasks):
                    await _stop_tasks(tasks, tuple(tasks))

    async def _sync_tasks(self, session: aiohttp.ClientSession) -> None:
        """Keep a task for each webhook that wants events, and one for its dead letters to retry: neither delays the
        other."""
        active = {webhook.webhook_id: webhook for webhook in await self._webhooks.list() if not webhook.disabled}
        for tasks in (self._send_tasks, self._retry_tasks):
            await _stop_tasks(tasks, [webhook_id for webhook_id in tasks if webhook_id not in active])
        for webhook in active.values():
            self._start(self._send_tasks, webhook.webhook_id, lambda one=webhook: self._send_new(one, session))
            if any(letter.queued for letter in await self._letters.list_letters(webhook.webhook_id)):
                self._start(
                    self._retry_tasks, webhook.webhook_id, lambda one=webhook: self._retry_letters(one, session)
                )

    def _start(self, tasks: Tasks, webhook_id: WebhookId, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if webhook_id not in tasks or tasks[webhook_id].done():
            tasks[webhook_id] = asyncio.create_task(_log_failures(webhook_id, work()), name=f"treadle-{webhook_id}")

    # ── One webhook ──

    async def _send_new(self, webhook: Webhook, session: aiohttp.ClientSession) -> None:
        saved = webhook.position
        async with aclosing(self._service.feed(webhook.position, webhook.agents)) as feed:
            async for placed in feed:
                if webhook.wants(placed.event.type):
                    done = await self._send_until_done(webhook, placed.event, placed.position, session)
                    if done is None:
                        return
                    webhook, saved = done, done.position
                elif placed.position - saved >= MAX_UNSAVED_EVENTS:
                    webhook, saved = replace(webhook, position=placed.position), placed.position
                    await self._webhooks.move(webhook)

    async def _send_until_done(
        self, webhook: Webhook, event: Event, position: int, session: aiohttp.ClientSession
    ) -> Webhook | None:
        """Return the webhook after this event was accepted or given up, or None if it wants no more."""
        while True:
            await self._wait_until(webhook.retry_at)
            refused = await self._send(webhook.webhook_id, webhook.url, event, webhook.attempts + 1, session)
            now = self._clock.now()
            if refused is None:
                done = replace(_advance_position(webhook, position), delivered_at=now, problem="")
                await self._webhooks.move(done)
                return done
            first = now if webhook.first_failed_at is None else webhook.first_failed_at
            webhook = replace(webhook, attempts=webhook.attempts + 1, first_failed_at=first, problem=refused.reason)
            if refused.gone:
                self._publish_failure(webhook, event)
                await self._webhooks.move(replace(webhook, disabled=True, attempts=0, first_failed_at=None))
                return None
            if webhook.gives_up(now):
                self._publish_failure(webhook, event)
                done = _advance_position(webhook, position)
                await self._webhooks.move(done, _to_dead_letter(webhook, event, now))
                return done
            webhook = replace(webhook, retry_at=now + retry_delay(webhook.attempts, self._chance()))
            self._publish_failure(webhook, event)
            await self._webhooks.move(webhook)

    async def _wait_until(self, moment: Instant | None) -> None:
        """Wait for this time. A longer wait than the maximum delay means that the clock was set back."""
        while moment is not None and 0 < (left := moment - self._clock.now()) <= MAX_DELAY_SECONDS:  # noqa: ASYNC110 -- the clock is not an event
            await asyncio.sleep(min(left, self._poll_interval))

    def _publish_failure(self, webhook: Webhook, event: Event) -> None:
        failed = WebhookFailed(
            webhook.webhook_id, event.event_id, webhook.attempts, webhook.problem, webhook.retry_at
        )
        self._live(event.origin, event.sequence, failed)

    # ── Dead letters ──

    async def _retry_letters(self, webhook: Webhook, session: aiohttp.ClientSession) -> None:
        for letter in await self._letters.list_letters(webhook.webhook_id):
            if letter.queued:
                await self._letters.settle(letter, await self._send_letter(webhook, letter, session))

    async def _send_letter(
        self, webhook: Webhook, letter: DeadLetter, session: aiohttp.ClientSession
    ) -> str | None:
        """Retry a dead letter. Return why it was not accepted, or None."""
        try:
            found = await self._service.page(letter.run_id, letter.sequence - 1, 1)
        except UnknownRun:
            return "The event was deleted with its session."
        if not found or found[0].event_id != letter.event_id:
            return "The event is not in the journal any more."
        refused = await self._send(webhook.webhook_id, webhook.url, found[0], letter.attempts + 1, session)
        return None if refused is None else refused.reason

    # ── One attempt ──

    async def _write_body(self, event: Event) -> bytes:
        """Return the event, with the labels of its run if it has some."""
        run_id = event.run_id
        if run_id not in self._labels:
            if len(self._labels) >= MAX_KNOWN_LABELS:
                self._labels.clear()
            with suppress(UnknownRun):  # it was deleted
                self._labels[run_id] = (await self._service.run(run_id)).labels
        labels = self._labels.get(run_id, NO_LABELS)
        body = to_json(event)
        return body if labels == NO_LABELS else b"%b,%b" % (body[:-1], encode(labels)[1:])

    async def _send(
        self, webhook_id: WebhookId, url: str, event: Event, attempt: int, session: aiohttp.ClientSession
    ) -> DeliveryRefused | None:
        """Make one attempt. Return why it failed, or None. Only the status of the response is read."""
        secret = self._secrets.value(secret_name(webhook_id))
        if secret is None:
            return DeliveryRefused("Its secret is not in the vault any more. Remove the webhook, and add it again.")
        host = urlsplit(url).hostname or ""
        if not self._allow_local and (why := explain_local_host(host)) is not None:
            return DeliveryRefused(describe_refusal(host, why))
        body = await self._write_body(event)
        headers = {
            "content-type": "application/json",
            "user-agent": "treadle",
            SEQUENCE_HEADER: str(event.sequence),
            **build_signature_headers(secret, event.event_id, self._time_of_day(), body),
        }
        try:
            async with session.post(url, data=BytesIO(body), headers=headers, allow_redirects=False) as response:
                status = response.status
        except TimeoutError:
            return DeliveryRefused(f"There was no answer within {self._timeout_seconds:g} seconds.")
        except aiohttp.ClientConnectorError as error:
            cause = error.os_error
            local = isinstance(cause, LocalDestination)
            return DeliveryRefused(str(cause) if local else f"It could not be reached: {error}"[:500])
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return DeliveryRefused(f"It could not be reached: {error or type(error).__name__}"[:500])
        if 200 <= status < 300:
            self._live(event.origin, event.sequence, WebhookDelivered(webhook_id, event.event_id, attempt))
            return None
        return DeliveryRefused(f"The receiver answered {status}.", gone=status == HTTP_GONE)


def _advance_position(webhook: Webhook, position: int) -> Webhook:
    return replace(webhook, position=position, attempts=0, first_failed_at=None, retry_at=None)


def _to_dead_letter(webhook: Webhook, event: Event, now: Instant) -> DeadLetter:
    return DeadLetter(
        webhook_id=webhook.webhook_id,
        event_id=event.event_id,
        run_id=event.run_id,
        sequence=event.sequence,
        type=event.type,
        attempts=webhook.attempts,
        reason=webhook.problem,
        died_at=now,
        queued=False,
    )


async def _log_failures(webhook_id: WebhookId, work: Coroutine[Any, Any, None]) -> None:
    """Log failures; the next poll starts the task again."""
    try:
        await work
    except StoreError as error:
        logger.error("webhook %s: %s", webhook_id, error)
    except Exception:
        logger.exception("webhook %s: sending failed; retrying", webhook_id)


async def _stop_tasks(tasks: Tasks, webhook_ids: Sequence[WebhookId]) -> None:
    """Cancel these tasks and wait for them."""
    stopped = [tasks.pop(webhook_id) for webhook_id in webhook_ids]
    for task in stopped:
        task.cancel()
    if stopped:
        await asyncio.wait(stopped)
