"""The route of inbound webhooks, which accepts signed messages without a token."""

from litestar import Response, post
from litestar.params import FromPath

from treadle.domain.webhooks import HookId
from treadle.operations.automation import Challenge, SignedMessage
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import Ticket
from treadle.surfaces.http.dependencies import ApiRequest, get_services

MAX_BODY_BYTES = 2**20
"""The largest body of a message."""


@post(
    "/v1/hooks/{hook_id:str}",
    status_code=202,
    request_max_body_size=MAX_BODY_BYTES,
    opt={"scope": None},
    include_in_schema=False,
)
async def receive(hook_id: FromPath[str], request: ApiRequest) -> Response[Ticket | Challenge]:
    """Serve `hooks.receive`."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    signed = SignedMessage(headers, await request.body())
    answer = await get_services(request).automation().receiving.receive(HookId(hook_id), signed)
    if answer is None:
        raise Refusal(
            401,
            "NotSigned",
            "The signature is missing, invalid or too old. Sign the request with the secret of the hook.",
        )
    return Response(answer, status_code=202 if isinstance(answer, Ticket) else 200)


ROUTES = [receive]
