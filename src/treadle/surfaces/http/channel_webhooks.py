"""The route of channels whose platform posts messages to the service, such as Telegram in webhook mode."""

from litestar import Response, post
from litestar.params import FromPath

from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, get_services

MAX_BODY_BYTES = 2**20
"""The largest body of a message. Files are fetched from the platform."""


@post(
    "/v1/channels/{channel:str}/webhook",
    status_code=200,
    request_max_body_size=MAX_BODY_BYTES,
    opt={"scope": None},
    include_in_schema=False,
)
async def receive(channel: FromPath[str], request: ApiRequest) -> Response[None]:
    """Serve `channels.webhook`. The messages are stored before the answer."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not await get_services(request).channels().deliver(channel, headers, await request.body()):
        raise Refusal(401, "NotSigned", "The request does not carry the secret of the channel's webhook.")
    return Response(None, status_code=200)


ROUTES = [receive]
