"""Requests from pages of other origins that `server.origins` names: preflights and response headers."""

import re

from starlette.types import Message, Scope, Send

ALLOWED_METHODS = b"GET, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Treadle-On-Disconnect",
    "X-Treadle-Session", "X-Treadle-User",
)  # fmt: skip
CLIENT_HEADERS = re.compile(r"(?:x-stainless|openai)-[a-z0-9-]{1,60}", re.IGNORECASE)
"""Headers that the clients of OpenAI send. Each version adds some, so a preflight is answered with those that it
asks for."""
EXPOSED_HEADERS = (
    b"Idempotent-Replayed, Location, Retry-After, X-Should-Retry, "
    b"X-Treadle-Ignored, X-Treadle-Run, X-Treadle-Session"
)
MAX_AGE_SECONDS = b"600"


def is_preflight(scope: Scope) -> bool:
    """Return whether a browser asks if it may send a request."""
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


def _list_allowed(scope: Scope) -> bytes:
    """Return the headers that a page may send, of those that it asks for and those that every page may send."""
    asked = [
        value.decode("latin-1") for name, value in scope["headers"] if name == b"access-control-request-headers"
    ]
    wanted = [each.strip() for value in asked for each in value.split(",")]
    return ", ".join((*ALLOWED_HEADERS, *filter(CLIENT_HEADERS.fullmatch, wanted))).encode()


async def answer_preflight(scope: Scope, origin: str, send: Send) -> None:
    """Tell the browser what a page of this origin may send. Cookies are never accepted from there."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", ALLOWED_METHODS),
        (b"access-control-allow-headers", _list_allowed(scope)),
        (b"access-control-max-age", MAX_AGE_SECONDS),
        (b"vary", b"Origin"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def allow_origin(origin: str, send: Send) -> Send:
    """Return `send` with the headers that let a page of this origin read the response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
                (b"vary", b"Origin"),
            ]
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return send_with_headers
