"""Management of webhooks that events are sent to."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from treadle.automation.inbound_webhooks import secret_name
from treadle.automation.schedules import NotifyChange
from treadle.automation.signing import generate_secret
from treadle.domain.errors import UnknownWebhook, UsageError
from treadle.domain.events import VOCABULARY
from treadle.domain.ids import EventId
from treadle.domain.webhooks import DeadLetter, Webhook, WebhookId
from treadle.operations.automation import DeadLetterView, NewWebhook, NewWebhookView, WebhookView
from treadle.operations.schemas import maybe, moment
from treadle.ports.automation import DeadLetters, Webhooks, WebhookSecrets
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import Feed


class WebhookRegistry:
    """Implements `operations.automation.WebhookManager`."""

    def __init__(
        self,
        webhooks: Webhooks,
        letters: DeadLetters,
        feed: Feed,
        secrets: WebhookSecrets,
        clock: Clock,
        ids: Ids,
        notify_change: NotifyChange,
        allow_local: bool = False,
    ) -> None:
        self._webhooks = webhooks
        self._letters = letters
        self._feed = feed
        self._secrets = secrets
        self._clock = clock
        self._ids = ids
        self._notify_change = notify_change
        self._allow_local = allow_local

    async def add(self, request: NewWebhook) -> NewWebhookView:
        """Add a webhook for future events. Raise UsageError if its URL is unusable or it matches no event."""
        _check_url(request.url)
        self._refuse_local(request.url)
        webhook = Webhook(
            webhook_id=WebhookId(self._ids("whk")),
            url=request.url,
            events=request.events,
            agents=request.agents,
            created_at=self._clock.now(),
            position=await self._feed.position(),
            most_attempts=request.most_attempts,
        )
        if not any(kind.durable and webhook.wants(name) for name, kind in VOCABULARY.items()):
            raise UsageError(
                f"No stored event is called {' or '.join(request.events)}. Try run_end, tool_call_* or *."
            )
        secret = generate_secret()
        await self._secrets.put(secret_name(webhook.webhook_id), secret)
        await self._webhooks.add(webhook)
        self._notify_change()
        return NewWebhookView(**_to_fields(webhook), secret=secret)

    async def list(self) -> Sequence[WebhookView]:
        return [WebhookView(**_to_fields(webhook)) for webhook in await self._webhooks.list()]

    async def remove(self, webhook_id: WebhookId) -> None:
        if not await self._webhooks.remove(webhook_id):
            raise _explain_unknown(webhook_id)
        await self._secrets.remove(secret_name(webhook_id))
        self._notify_change()

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        await self._refuse_unknown(webhook_id)
        return [_to_dead_letter_view(letter) for letter in await self._letters.list_letters(webhook_id)]

    async def retry(self, webhook_id: WebhookId, event_id: EventId | None = None) -> int:
        await self._refuse_unknown(webhook_id)
        count = await self._letters.queue(webhook_id, event_id)
        if event_id is not None and not count:
            raise UsageError(
                f"{webhook_id} has no dead letter {event_id}. `treadle webhooks dead {webhook_id}` shows all."
            )
        self._notify_change()
        return count

    def _refuse_local(self, url: str) -> None:
        """Raise UsageError if the URL shows that the destination is not allowed. The sender checks the rest."""
        from treadle.automation.destinations import describe_refusal, explain_local_host

        host = urlsplit(url).hostname or ""
        if not self._allow_local and (why := explain_local_host(host)) is not None:
            raise UsageError(describe_refusal(host, why))

    async def _refuse_unknown(self, webhook_id: WebhookId) -> None:
        if all(webhook.webhook_id != webhook_id for webhook in await self._webhooks.list()):
            raise _explain_unknown(webhook_id)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        raise UsageError(f"`{url[:200]}` cannot be sent to; accepted: https://HOST/PATH, or http:// for your own.")


def _explain_unknown(webhook_id: WebhookId) -> UnknownWebhook:
    return UnknownWebhook(f"There is no webhook {webhook_id}. `treadle webhooks list` shows all webhooks.")


def _to_fields(webhook: Webhook) -> dict[str, Any]:
    return {
        "webhook_id": webhook.webhook_id,
        "url": webhook.url,
        "events": webhook.events,
        "agents": webhook.agents,
        "most_attempts": webhook.most_attempts,
        "created_at": moment(webhook.created_at),
        "delivered_at": maybe(webhook.delivered_at),
        "attempts": webhook.attempts,
        "retry_at": maybe(webhook.retry_at),
        "problem": webhook.problem,
        "disabled": webhook.disabled,
    }


def _to_dead_letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        event_id=letter.event_id,
        run_id=letter.run_id,
        sequence=letter.sequence,
        type=letter.type,
        attempts=letter.attempts,
        reason=letter.reason,
        died_at=moment(letter.died_at),
        queued=letter.queued,
    )
