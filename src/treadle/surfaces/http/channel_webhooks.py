"""The route of channels whose platform posts messages to the service, such as Telegram in webhook mode."""

from starlette.responses import Response

from treadle.operations.channels import WEBHOOK
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, get_services
from treadle.surfaces.http.routing import route

MAX_BODY_BYTES = 2**20
"""The largest body of a message. Files are fetched from the platform."""


@route(WEBHOOK.method, WEBHOOK.path, max_body_bytes=MAX_BODY_BYTES)
async def receive(request: ApiRequest) -> Response:
    """Serve `channels.webhook`. The messages are stored before the answer."""
    channel, headers = request.path_params["channel"], dict(request.headers)
    if not await get_services(request).channels().deliver(channel, headers, await request.body()):
        raise Refusal(401, "NotSigned", "The request does not carry the secret of the channel's webhook.")
    return Response(media_type="application/json")


ROUTES = [receive]
