"""Webhooks: addresses that events are sent to."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.ids import EventId
from treadle.domain.webhooks import WebhookId
from treadle.operations.automation import DeadLetterView, NewWebhook, NewWebhookView, WebhookView
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class RetriedEvents(Struct, frozen=True):
    """How many events are sent again."""

    events: int


class OneWebhook(Struct, frozen=True, forbid_unknown_fields=True):
    webhook_id: WebhookId


class RetryEvents(Struct, frozen=True, forbid_unknown_fields=True):
    webhook_id: WebhookId
    event_id: Annotated[EventId, Meta(min_length=1)] | None = None


LIST = Operation(
    "webhooks.list",
    "GET",
    "/v1/webhooks",
    scope="admin",
    request=NoParameters,
    response=Page[WebhookView],
)
CREATE = Operation(
    "webhooks.create",
    "POST",
    "/v1/webhooks",
    scope="admin",
    request=NewWebhook,
    response=NewWebhookView,
    status=201,
)
REMOVE = Operation(
    "webhooks.remove",
    "DELETE",
    "/v1/webhooks/{webhook_id}",
    scope="admin",
    request=OneWebhook,
    response=type(None),
    errors=(404,),
)
DEAD = Operation(
    "webhooks.dead",
    "GET",
    "/v1/webhooks/{webhook_id}/dead",
    scope="admin",
    request=OneWebhook,
    response=Page[DeadLetterView],
    errors=(404,),
)
RETRY = Operation(
    "webhooks.retry",
    "POST",
    "/v1/webhooks/{webhook_id}/retry",
    scope="admin",
    request=RetryEvents,
    response=RetriedEvents,
    status=202,
    errors=(404,),
    in_query=("event_id",),
)


@LIST.handler
async def list_webhooks(context: Context, request: NoParameters) -> Page[WebhookView]:
    """List webhooks."""
    return Page(tuple(await context.automation().webhooks.list()))


@CREATE.handler
async def create_webhook(context: Context, request: NewWebhook) -> NewWebhookView:
    """Create a webhook.

    Events that are committed from now on are sent to it. The response is the only place where its secret is
    shown."""
    return await context.automation().webhooks.add(request)


@REMOVE.handler
async def remove_webhook(context: Context, request: OneWebhook) -> None:
    """Remove a webhook."""
    await context.automation().webhooks.remove(request.webhook_id)


@DEAD.handler
async def list_dead_letters(context: Context, request: OneWebhook) -> Page[DeadLetterView]:
    """List the events that could not be delivered.

    The oldest first."""
    return Page(tuple(await context.automation().webhooks.dead(request.webhook_id)))


@RETRY.handler
async def retry_events(context: Context, request: RetryEvents) -> RetriedEvents:
    """Send events again that could not be delivered.

    One event, or all. A webhook that was disabled is enabled again."""
    return RetriedEvents(await context.automation().webhooks.retry(request.webhook_id, request.event_id))
