"""Refuses requests whose body is announced to be too large, on every route: also on those that read none."""

from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.domain.errors import SizeLimitExceeded
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.auth import send_problem

MAX_BODY_BYTES = 32 * 2**20
"""The largest request body."""


def make_size_refusal(limit: int = MAX_BODY_BYTES) -> Refusal:
    return Refusal(413, SizeLimitExceeded.__name__, f"The body has more than {limit} bytes. Send less at once.")


class BodyLimit:
    """ASGI middleware. A body of unknown length is limited where it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _read_length(scope) > MAX_BODY_BYTES:
            await send_problem(make_size_refusal(), scope, send)
        else:
            await self._app(scope, receive, send)


def _read_length(scope: Scope) -> int:
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(given) if given.isdigit() else 0
