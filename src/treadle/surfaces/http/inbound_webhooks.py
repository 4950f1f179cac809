"""The route of inbound webhooks, which accepts signed messages without a token."""

from starlette.responses import Response

from treadle.domain.webhooks import HookId
from treadle.operations.automation import SignedMessage
from treadle.operations.inbound_webhooks import RECEIVE
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import Ticket
from treadle.surfaces.http.dependencies import ApiRequest, get_services
from treadle.surfaces.http.routing import make_json_response, route

MAX_BODY_BYTES = 2**20
"""The largest body of a message."""


@route(RECEIVE.method, RECEIVE.path, max_body_bytes=MAX_BODY_BYTES)
async def receive(request: ApiRequest) -> Response:
    """Serve `hooks.receive`."""
    signed = SignedMessage(dict(request.headers), await request.body())
    hook = HookId(request.path_params["hook_id"])
    answer = await get_services(request).automation().receiving.receive(hook, signed)
    if answer is None:
        raise Refusal(
            401,
            "NotSigned",
            "The signature is missing, invalid or too old. Sign the request with the secret of the hook.",
        )
    return make_json_response(answer, 202 if isinstance(answer, Ticket) else 200)


ROUTES = [receive]
