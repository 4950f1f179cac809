"""Stream tickets: short-lived permissions to open one stream, for clients that cannot send headers."""

import re
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.errors import UsageError
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import moment

STREAM_PATH = re.compile(r"/v1/(?:events|runs/(?P<run>[^/?#]+)/events|agents/(?P<agent>[^/?#]+)/events)")


class NewTicket(Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[
        str,
        Meta(
            max_length=500,
            description="The path of the stream: /v1/runs/ID/events.",
            extra_json_schema={"pattern": r"^/v1/(events|runs/[^/?#]+/events|agents/[^/?#]+/events)$"},
        ),
    ]


class StreamTicket(Struct, frozen=True):
    """A ticket. Open the stream with `?ticket=…`; reconnect with the same ticket until it expires."""

    ticket: str
    path: str
    expires_at: datetime


CREATE = Operation(
    "tickets.create",
    "POST",
    "/v1/stream-tickets",
    scope="read",
    request=NewTicket,
    response=StreamTicket,
    status=201,
    errors=(404, 422),
    tag="events",
)


@CREATE.handler
async def create_ticket(context: Context, request: NewTicket) -> StreamTicket:
    """Create a ticket for a stream.

    `EventSource` in a browser cannot send the Authorization header. A ticket opens one stream path, and its
    reconnects, for 10 minutes. It ends with its token and is not a token itself."""
    found = STREAM_PATH.fullmatch(request.path)
    if found is None:
        raise UsageError(
            "path: it is not the path of a stream. Accepted: /v1/events, /v1/runs/ID/events and "
            "/v1/agents/NAME/events."
        )
    if found["run"] is not None:
        await context.visible_run(found["run"])
    if found["agent"] is not None:
        context.visible_agent(found["agent"])
    is_served = context.principal.multi_user or context.principal.served is not None
    if is_served and found["run"] is None:
        raise UsageError(
            "A ticket of a token that serves several people is for the stream of one run: /v1/runs/ID/events."
        )
    token_id = context.principal.token_id
    if token_id is None or not context.principal.has_access_token:
        raise UsageError("A ticket stands for an access token, and this request has none. Send it with a token.")
    ticket, expires_at = await context.access.make_ticket(token_id, request.path)
    return StreamTicket(ticket, request.path, moment(expires_at))
