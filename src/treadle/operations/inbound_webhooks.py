"""Inbound webhooks: addresses to which others send signed messages for an agent."""

from msgspec import Struct

from treadle.domain.ids import RunId, SessionId
from treadle.domain.webhooks import HookId
from treadle.operations.automation import HookSecret, HookView, NewHook, NewHookView
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class StartedRun(Struct, frozen=True):
    """The run that a message started."""

    run_id: RunId
    session_id: SessionId


class OneHook(Struct, frozen=True, forbid_unknown_fields=True):
    hook_id: HookId


class RotateHook(Struct, frozen=True, forbid_unknown_fields=True):
    hook_id: HookId
    secret: HookSecret | None = None
    """The secret that the sender signs with, if the sender chose it. Default: a new one."""


LIST = Operation(
    "hooks.list",
    "GET",
    "/v1/hooks",
    scope="admin",
    request=NoParameters,
    response=Page[HookView],
)
CREATE = Operation(
    "hooks.create",
    "POST",
    "/v1/hooks",
    scope="admin",
    request=NewHook,
    response=NewHookView,
    status=201,
    errors=(404,),
)
REMOVE = Operation(
    "hooks.remove",
    "DELETE",
    "/v1/hooks/{hook_id}",
    scope="admin",
    request=OneHook,
    response=type(None),
    errors=(404,),
)
ROTATE = Operation(
    "hooks.rotate",
    "POST",
    "/v1/hooks/{hook_id}/rotate",
    scope="admin",
    request=RotateHook,
    response=NewHookView,
    errors=(404,),
)
RECEIVE = Operation(
    "hooks.receive",
    "POST",
    "/v1/hooks/{hook_id}",
    scope=None,
    request=OneHook,
    response=StartedRun,
    status=202,
    summary="Send a message to an inbound webhook",
    description="Signed as the scheme of the webhook says: Standard Webhooks (`webhook-id`, `webhook-timestamp`, "
    "`webhook-signature`), GitHub (`X-Hub-Signature-256`), GitLab (`X-Gitlab-Token`), Stripe (`Stripe-Signature`) "
    "or Slack (`X-Slack-Signature`). A signed timestamp is valid for five minutes. A message starts one run; sent "
    "again, it is answered with that run. The set-up requests of GitHub and Slack are answered with 200.",
)


@LIST.handler
async def list_hooks(context: Context, request: NoParameters) -> Page[HookView]:
    """List inbound webhooks."""
    return Page(tuple(await context.automation().hooks.list()))


@CREATE.handler
async def create_hook(context: Context, request: NewHook) -> NewHookView:
    """Create an inbound webhook.

    The response is the only place where its secret is shown."""
    context.refuse_anonymous()
    return await context.automation().hooks.add(request, context.principal.user)


@REMOVE.handler
async def remove_hook(context: Context, request: OneHook) -> None:
    """Remove an inbound webhook."""
    await context.automation().hooks.remove(request.hook_id)


@ROTATE.handler
async def rotate_hook(context: Context, request: RotateHook) -> NewHookView:
    """Give an inbound webhook a new secret.

    The previous secret stops working immediately."""
    return await context.automation().hooks.rotate(request.hook_id, request.secret)
