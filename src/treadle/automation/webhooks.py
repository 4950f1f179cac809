"""Management of webhooks that events are sent to."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from treadle.automation.inbound_webhooks import secret_name
from treadle.automation.schedules import NotifyChange
from treadle.automation.signing import generate_secret
from treadle.domain.errors import UnknownWebhook, UsageError
from treadle.domain.events import VOCABULARY
from treadle.domain.ids import EventId
from treadle.domain.webhooks import Webhook, WebhookId
from treadle.operations.automation import DeadLetterView, NewWebhook, NewWebhookView, WebhookView
from treadle.operations.schemas import make_view
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
            delivered_at=None,
            attempts=0,
            retry_at=None,
            problem="",
            disabled=False,
        )
        if not any(kind.durable and webhook.wants(name) for name, kind in VOCABULARY.items()):
            raise UsageError(
                f"No stored event is called {' or '.join(request.events)}. Try run_end, tool_call_* or *."
            )
        secret = generate_secret()
        await self._secrets.put(secret_name(webhook.webhook_id), secret)
        await self._webhooks.add(webhook)
        self._notify_change()
        return make_view(NewWebhookView, webhook, secret=secret, dead_letters=0)

    async def list(self) -> Sequence[WebhookView]:
        letters = await self._letters.count_letters()
        return [
            make_view(WebhookView, webhook, dead_letters=letters.get(webhook.webhook_id, 0))
            for webhook in await self._webhooks.list()
        ]

    async def remove(self, webhook_id: WebhookId) -> None:
        if not await self._webhooks.remove(webhook_id):
            raise _explain_unknown(webhook_id)
        await self._secrets.remove(secret_name(webhook_id))
        self._notify_change()

    async def dead(self, webhook_id: WebhookId) -> Sequence[DeadLetterView]:
        await self._refuse_unknown(webhook_id)
        return [make_view(DeadLetterView, letter) for letter in await self._letters.list_letters(webhook_id)]

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
