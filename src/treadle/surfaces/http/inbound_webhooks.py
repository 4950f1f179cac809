"""Hooks: what others send, signed, becomes a message to an agent. Sending needs no token; all the rest does."""

from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody

from treadle.domain.webhooks import HookId
from treadle.operations import Ticket
from treadle.operations.automation import HookView, NewHook, NewHookView, Signed
from treadle.operations.schemas import Page
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks
from treadle.surfaces.http.problems import Refusal

MOST_BYTES = 2**20
"""Of what is sent to a hook."""


@get("/v1/hooks", **asks("admin", "List inbound webhooks"))
async def list_hooks(request: Asked) -> Page[HookView]:
    return Page(tuple(await served_of(request).automation.hooks.list()))


@post("/v1/hooks", status_code=201, **asks("admin", "Create an inbound webhook", 404))
async def create(data: JSONBody[NewHook], request: Asked) -> NewHookView:
    """The secret is returned once."""
    return await served_of(request).automation.hooks.add(data, principal_of(request).user)


@delete("/v1/hooks/{hook_id:str}", **asks("admin", "Delete an inbound webhook", 404))
async def remove(hook_id: FromPath[str], request: Asked) -> None:
    await served_of(request).automation.hooks.remove(HookId(hook_id))


@post(
    "/v1/hooks/{hook_id:str}/rotate",
    status_code=200,
    **asks("admin", "Replace the secret of an inbound webhook", 404),
)
async def rotate(hook_id: FromPath[str], request: Asked) -> NewHookView:
    """The previous secret is invalid at once."""
    return await served_of(request).automation.hooks.rotate(HookId(hook_id))


@post(
    "/v1/hooks/{hook_id:str}",
    status_code=202,
    request_max_body_size=MOST_BYTES,
    security=[],
    **asks(None, "Send a payload to an inbound webhook", 409),
)
async def receive(hook_id: FromPath[str], request: Asked) -> Ticket:
    """The request is signed as in Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`. Each
    `webhook-id` is accepted once, within five minutes of its timestamp."""
    headers = request.headers
    signed = Signed(
        headers.get("webhook-id", ""),
        headers.get("webhook-timestamp", ""),
        headers.get("webhook-signature", ""),
        await request.body(),
    )
    ticket = await served_of(request).automation.receiving.receive(HookId(hook_id), signed)
    if ticket is None:
        raise Refusal(
            401,
            "NotSigned",
            "The signature is missing, invalid or too old. Sign the request with the secret of the hook.",
        )
    return ticket


ROUTES = Router("/", route_handlers=[list_hooks, create, remove, rotate, receive], tags=["hooks"])
