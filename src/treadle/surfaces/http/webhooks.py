"""Webhooks: addresses that events are sent to."""

from litestar import Router, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Struct

from treadle.domain.webhooks import WebhookId
from treadle.operations.automation import DeadLetterView, NewWebhook, NewWebhookView, WebhookView
from treadle.operations.schemas import Page
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks


class Queued(Struct, frozen=True):
    events: int
    """That are tried again."""


@get("/v1/webhooks", **asks("admin", "List webhooks"))
async def list_webhooks(request: Asked) -> Page[WebhookView]:
    return Page(tuple(await served_of(request).automation.webhooks.list()))


@post("/v1/webhooks", status_code=201, **asks("admin", "Create a webhook"))
async def create(data: JSONBody[NewWebhook], request: Asked) -> NewWebhookView:
    """Events that are committed from now on are sent. The secret that signs them is returned once."""
    return await served_of(request).automation.webhooks.add(data)


@delete("/v1/webhooks/{webhook_id:str}", **asks("admin", "Delete a webhook", 404))
async def remove(webhook_id: FromPath[str], request: Asked) -> None:
    await served_of(request).automation.webhooks.remove(WebhookId(webhook_id))


@get("/v1/webhooks/{webhook_id:str}/dead", **asks("admin", "List undeliverable events", 404))
async def dead(webhook_id: FromPath[str], request: Asked) -> Page[DeadLetterView]:
    """Oldest first."""
    return Page(tuple(await served_of(request).automation.webhooks.dead(WebhookId(webhook_id))))


@post(
    "/v1/webhooks/{webhook_id:str}/retry",
    status_code=202,
    **asks("admin", "Retry undeliverable events", 404),
)
async def retry(webhook_id: FromPath[str], request: Asked, event_id: FromQuery[str | None] = None) -> Queued:
    """Retries one event or all, and enables the webhook again."""
    return Queued(await served_of(request).automation.webhooks.retry(WebhookId(webhook_id), event_id))


ROUTES = Router("/", route_handlers=[list_webhooks, create, remove, dead, retry], tags=["webhooks"])
