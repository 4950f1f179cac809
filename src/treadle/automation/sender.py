"""Sends events to webhooks: at least once, in the order of commits for each of them, and each at its own pace.

Where a webhook has come to is kept after an event was taken. Whoever dies between the two sends it again: its id is
the same, and the receiver can tell."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct
from msgspec.structs import replace

from treadle.automation.destinations import LocalDestination, VettedResolver, local_host, refusal
from treadle.automation.inbound_webhooks import secret_name
from treadle.automation.signing import signed
from treadle.domain.envelope import Event, Origin, to_json
from treadle.domain.errors import StoreError, UnknownRun
from treadle.domain.events import EventData, WebhookDelivered, WebhookFailed
from treadle.domain.ids import Instant
from treadle.domain.webhooks import LONGEST_DELAY, DeadLetter, Webhook, WebhookId, delay_after
from treadle.operations.service import LocalService
from treadle.ports.automation import DeadLetters, Secrets, Webhooks
from treadle.ports.clock import Clock

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
LOOK_SECONDS = 5.0
"""So often it looks whether the time for another attempt has come: the clock may be set."""
UNKEPT_EVENTS = 1000
"""So many events that nobody wants may be looked at again after a restart."""
GONE = 410
SEQUENCE = "treadle-sequence"

Live = Callable[[Origin, int, EventData], None]
Tasks = dict[WebhookId, asyncio.Task[None]]


class DeliveryRefused(Struct, frozen=True):
    """Why an event was not taken."""

    reason: str
    gone: bool = False
    """The receiver wants no more, ever."""


class Sender:
    def __init__(
        self,
        webhooks: Webhooks,
        letters: DeadLetters,
        service: LocalService,
        secrets: Secrets,
        live: Live,
        clock: Clock,
        chance: Callable[[], float],
        time_of_day: Callable[[], Instant],
        look_every: float = LOOK_SECONDS,
        patience: float = TIMEOUT_SECONDS,
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
        self._look_every = look_every
        self._patience = patience
        self._allow_local = allow_local
        self._changed = asyncio.Event()
        self._sending: Tasks = {}
        self._sending_again: Tasks = {}

    def look_now(self) -> None:
        """Something was changed."""
        self._changed.set()

    async def work(self) -> None:
        """Send, with a task for each webhook, until it is cancelled."""
        timeout = aiohttp.ClientTimeout(total=self._patience)
        connector = aiohttp.TCPConnector(resolver=None if self._allow_local else VettedResolver())
        async with aiohttp.ClientSession(
            timeout=timeout, trust_env=False, auto_decompress=False, connector=connector
        ) as session:
            try:
                while True:
                    self._changed.clear()
                    try:
                        await self._look(session)
                    except StoreError as error:
                        logger.error("webhooks: %s", error)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._look_every):
                            await self._changed.wait()
            finally:
                for tasks in (self._sending, self._sending_again):
                    await _stop(tasks, tuple(tasks))

    async def _look(self, session: aiohttp.ClientSession) -> None:
        """Let there be a task for each webhook that wants events, and one for what is to be tried again: neither
        holds up the other."""
        wanted = {webhook.webhook_id: webhook for webhook in await self._webhooks.list() if not webhook.disabled}
        for tasks in (self._sending, self._sending_again):
            await _stop(tasks, [webhook_id for webhook_id in tasks if webhook_id not in wanted])
        for webhook in wanted.values():
            self._start(self._sending, webhook.webhook_id, lambda one=webhook: self._send_new(one, session))
            if any(letter.queued for letter in await self._letters.of(webhook.webhook_id)):
                self._start(
                    self._sending_again, webhook.webhook_id, lambda one=webhook: self._send_again(one, session)
                )

    def _start(self, tasks: Tasks, webhook_id: WebhookId, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if webhook_id not in tasks or tasks[webhook_id].done():
            tasks[webhook_id] = asyncio.create_task(_guarded(webhook_id, work()), name=f"treadle-{webhook_id}")

    # ── One webhook ──

    async def _send_new(self, webhook: Webhook, session: aiohttp.ClientSession) -> None:
        kept = webhook.position
        async with aclosing(self._service.feed(webhook.position, webhook.agents)) as feed:
            async for placed in feed:
                if webhook.wants(placed.event.type):
                    done = await self._send_until_done(webhook, placed.event, placed.position, session)
                    if done is None:
                        return
                    webhook, kept = done, done.position
                elif placed.position - kept >= UNKEPT_EVENTS:
                    webhook, kept = replace(webhook, position=placed.position), placed.position
                    await self._webhooks.move(webhook)

    async def _send_until_done(
        self, webhook: Webhook, event: Event, position: int, session: aiohttp.ClientSession
    ) -> Webhook | None:
        """The webhook, past this event: it was taken, or given up. None: it wants no more."""
        while True:
            await self._until(webhook.retry_at)
            refused = await self._send(webhook.webhook_id, webhook.url, event, webhook.attempts + 1, session)
            now = self._clock.now()
            if refused is None:
                done = replace(_past(webhook, position), delivered_at=now, problem="")
                await self._webhooks.move(done)
                return done
            first = now if webhook.first_failed_at is None else webhook.first_failed_at
            webhook = replace(webhook, attempts=webhook.attempts + 1, first_failed_at=first, problem=refused.reason)
            if refused.gone:
                self._failed(webhook, event)
                await self._webhooks.move(replace(webhook, disabled=True, attempts=0, first_failed_at=None))
                return None
            if webhook.gives_up(now):
                self._failed(webhook, event)
                done = _past(webhook, position)
                await self._webhooks.move(done, _dead(webhook, event, now))
                return done
            webhook = replace(webhook, retry_at=now + delay_after(webhook.attempts, self._chance()))
            self._failed(webhook, event)
            await self._webhooks.move(webhook)

    async def _until(self, moment: Instant | None) -> None:
        """No delay is longer than the longest: then the clock was set back."""
        while moment is not None and 0 < (left := moment - self._clock.now()) <= LONGEST_DELAY:  # noqa: ASYNC110 -- the clock is no event
            await asyncio.sleep(min(left, self._look_every))

    def _failed(self, webhook: Webhook, event: Event) -> None:
        failed = WebhookFailed(
            webhook.webhook_id, event.event_id, webhook.attempts, webhook.problem, webhook.retry_at
        )
        self._live(event.origin, event.sequence, failed)

    # ── What was given up, and asked for again ──

    async def _send_again(self, webhook: Webhook, session: aiohttp.ClientSession) -> None:
        for letter in await self._letters.of(webhook.webhook_id):
            if letter.queued:
                await self._letters.settle(letter, await self._send_letter(webhook, letter, session))

    async def _send_letter(
        self, webhook: Webhook, letter: DeadLetter, session: aiohttp.ClientSession
    ) -> str | None:
        """Why it was not taken this time either; None: it was."""
        try:
            found = await self._service.page(letter.run_id, letter.sequence - 1, 1)
        except UnknownRun:
            return "The event was deleted with its session."
        if not found or found[0].event_id != letter.event_id:
            return "The event is not in the journal any more."
        refused = await self._send(webhook.webhook_id, webhook.url, found[0], letter.attempts + 1, session)
        return None if refused is None else refused.reason

    # ── One attempt ──

    async def _send(
        self, webhook_id: WebhookId, url: str, event: Event, attempt: int, session: aiohttp.ClientSession
    ) -> DeliveryRefused | None:
        """None: it was taken. What the receiver answers beside its status is not read."""
        secret = self._secrets.value(secret_name(webhook_id))
        if secret is None:
            return DeliveryRefused("Its secret is not in the vault any more. Remove the webhook, and add it again.")
        host = urlsplit(url).hostname or ""
        if not self._allow_local and (why := local_host(host)) is not None:
            return DeliveryRefused(refusal(host, why))
        body = to_json(event)
        headers = {
            "content-type": "application/json",
            "user-agent": "treadle",
            SEQUENCE: str(event.sequence),
            **signed(secret, event.event_id, self._time_of_day(), body),
        }
        try:
            async with session.post(url, data=BytesIO(body), headers=headers, allow_redirects=False) as response:
                status = response.status
        except TimeoutError:
            return DeliveryRefused(f"There was no answer within {self._patience:g} seconds.")
        except aiohttp.ClientConnectorError as error:
            cause = error.os_error
            local = isinstance(cause, LocalDestination)
            return DeliveryRefused(str(cause) if local else f"It could not be reached: {error}"[:500])
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return DeliveryRefused(f"It could not be reached: {error or type(error).__name__}"[:500])
        if 200 <= status < 300:
            self._live(event.origin, event.sequence, WebhookDelivered(webhook_id, event.event_id, attempt))
            return None
        return DeliveryRefused(f"The receiver answered {status}.", gone=status == GONE)


def _past(webhook: Webhook, position: int) -> Webhook:
    return replace(webhook, position=position, attempts=0, first_failed_at=None, retry_at=None)


def _dead(webhook: Webhook, event: Event, now: Instant) -> DeadLetter:
    return DeadLetter(
        webhook.webhook_id,
        event.event_id,
        event.run_id,
        event.sequence,
        event.type,
        webhook.attempts,
        webhook.problem,
        now,
    )


async def _guarded(webhook_id: WebhookId, work: Coroutine[Any, Any, None]) -> None:
    """The next look starts anew what has failed here."""
    try:
        await work
    except StoreError as error:
        logger.error("webhook %s: %s", webhook_id, error)
    except Exception:
        logger.exception("webhook %s: sending has failed; it is tried again", webhook_id)


async def _stop(tasks: Tasks, webhook_ids: Sequence[WebhookId]) -> None:
    """Stop these, and wait until they have."""
    stopped = [tasks.pop(webhook_id) for webhook_id in webhook_ids]
    for task in stopped:
        task.cancel()
    if stopped:
        await asyncio.wait(stopped)
