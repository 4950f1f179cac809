"""The text of a request: its path in one spelling, and valid UTF-8 in its path, query and headers."""

import re
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.operations.refusal import Refusal

_SLASHES = re.compile("/{2,}")


class NormalisedPath:
    """ASGI middleware in front of everything else: gives the path of a request the spelling that its route has.

    `/v1//models/` reaches the route `/v1/models`. Whatever decides by the path must see the same path: whether a
    cookie counts, whether a token is needed, and which route an idempotency key belongs to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = "/" + _SLASHES.sub("/", scope["path"].strip("/"))
        await self._app(scope, receive, send)


def refuse_invalid_text(scope: Scope) -> None:
    """Raise Refusal if a path, a query or a header is not UTF-8 or contains a NUL."""
    raw_path, query = scope["raw_path"], scope["query_string"]
    if b"%" in raw_path or not raw_path.isascii():
        _check_text(unquote_to_bytes(raw_path), "path")
    if b"%" in query or not query.isascii():
        _check_text(unquote_to_bytes(query), "query")
    for name, value in scope["headers"]:
        if not value.isascii():
            _check_text(value, f"header {name.decode('latin-1')}")


def _check_text(text: bytes, where: str) -> None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "InvalidText", f"The {where} is not valid UTF-8. Encode it as UTF-8.") from None
    if b"\0" in text:
        raise Refusal(400, "InvalidText", f"The {where} contains a NUL character. Leave it out.")
