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


@get("/v1/hooks", **asks("admin", "List hooks"))
async def list_hooks(request: Asked) -> Page[HookView]:
    return Page(tuple(await served_of(request).automation.hooks.list()))


@post("/v1/hooks", status_code=201, **asks("admin", "Make a hook", 404))
async def create(data: JSONBody[NewHook], request: Asked) -> NewHookView:
    """Its secret is shown this once."""
    return await served_of(request).automation.hooks.add(data, principal_of(request).user)


@delete("/v1/hooks/{hook_id:str}", **asks("admin", "Remove a hook", 404))
async def remove(hook_id: FromPath[str], request: Asked) -> None:
    await served_of(request).automation.hooks.remove(HookId(hook_id))


@post("/v1/hooks/{hook_id:str}/rotate", status_code=200, **asks("admin", "Give a hook another secret", 404))
async def rotate(hook_id: FromPath[str], request: Asked) -> NewHookView:
    """The one before is worth nothing from now on."""
    return await served_of(request).automation.hooks.rotate(HookId(hook_id))


@post(
    "/v1/hooks/{hook_id:str}",
    status_code=202,
    request_max_body_size=MOST_BYTES,
    security=[],
    **asks(None, "Send to a hook", 409),
)
async def receive(hook_id: FromPath[str], request: Asked) -> Ticket:
    """Signed as Standard Webhooks has it: `webhook-id`, `webhook-timestamp`, `webhook-signature`. A message is
    taken once, within five minutes of its time."""
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
            401, "NotSigned", "No hook here takes this: sign it with the secret of the hook, and send it now."
        )
    return ticket


ROUTES = Router("/", route_handlers=[list_hooks, create, remove, rotate, receive], tags=["hooks"])
