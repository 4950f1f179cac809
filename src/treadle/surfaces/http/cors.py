"""Requests from pages of other origins that `server.origins` names: preflights and response headers."""

from starlette.types import Message, Scope, Send

ALLOWED_METHODS = b"GET, POST, PUT, PATCH, DELETE"
ALLOWED_HEADERS = b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
EXPOSED_HEADERS = b"Location, Retry-After"
MAX_AGE_SECONDS = b"600"


def is_preflight(scope: Scope) -> bool:
    """Return whether a browser asks if it may send a request."""
    return scope["method"] == "OPTIONS" and any(
        name == b"access-control-request-method" for name, _ in scope["headers"]
    )


async def answer_preflight(origin: str, send: Send) -> None:
    """Tell the browser what a page of this origin may send. Cookies are never accepted from there."""
    headers = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", ALLOWED_METHODS),
        (b"access-control-allow-headers", ALLOWED_HEADERS),
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
