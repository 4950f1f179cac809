"""Headers and compression of answers: JSON is never stored or sniffed, and large answers are compressed.

Compression can reveal a secret by the length of an answer that has both the secret and text of an attacker, if the
attacker can make the client repeat its request and sees the lengths (BREACH). Requests of other sites are refused
before a route runs, so a page cannot repeat them. Answers that carry a secret are not compressed in any case."""

import asyncio
import gzip
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_COMPRESSED_BYTES = 16 * 1024
"""Smaller answers are sent as they are."""
MAX_INLINE_BYTES = 256 * 1024
"""Larger answers are compressed in a thread."""
LEVEL = 4
_JSON = re.compile(rb"application/(?:[\w.+-]+\+)?json\b")
_COMPRESSIBLE = re.compile(rb"application/(?:[\w.+-]+\+)?json\b|text/(?!event-stream)")
_SECRET_PATH = re.compile(r"/v1/(?:tokens|sign-in|tickets|vault|inbound-webhooks|webhooks|channels)(?:/|\Z)")
"""Paths whose answers may carry a secret."""
_GZIP = re.compile(r"(?:\A|,)\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+))?\s*(?=,|\Z)", re.IGNORECASE)
Headers = list[tuple[bytes, bytes]]


class SafeResponses:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._app(scope, receive, _Response(scope, send).send)
        else:
            await self._app(scope, receive, send)


class _Response:
    """One response on its way to the client."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._accepts_gzip = accepts_gzip(scope) and not _SECRET_PATH.match(scope["path"])
        self._start: Message | None = None
        """The start of a response that may be compressed. It waits for the body."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._start is not None and message["type"] == "http.response.body":
            await self._add_body(message)
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        headers: Headers = list(start["headers"])
        found = {name.lower(): value for name, value in headers}
        media_type = found.get(b"content-type", b"")
        if _JSON.match(media_type):
            headers += [(name, value) for name, value in _JSON_HEADERS if name not in found]
        start = {**start, "headers": headers}
        is_plain = start["status"] not in (204, 206, 304) and b"content-encoding" not in found
        if self._accepts_gzip and is_plain and _COMPRESSIBLE.match(media_type):
            self._start = start
        else:
            await self._send(start)

    async def _add_body(self, message: Message) -> None:
        start, self._start = self._start, None
        assert start is not None
        body: bytes = message.get("body", b"")
        varies = [value for name, value in start["headers"] if name.lower() == b"vary"]
        headers: Headers = [(name, value) for name, value in start["headers"] if name.lower() != b"vary"]
        headers.append((b"vary", b", ".join((*varies, b"Accept-Encoding"))))
        if not message.get("more_body") and len(body) >= MIN_COMPRESSED_BYTES:
            body = await _compress(body)
            headers = [(name, value) for name, value in headers if name.lower() not in (b"content-length", b"etag")]
            headers += [(b"content-encoding", b"gzip"), (b"content-length", str(len(body)).encode())]
        await self._send({**start, "headers": headers})
        await self._send({**message, "body": body})


_JSON_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def accepts_gzip(scope: Scope) -> bool:
    """Return whether the client accepts gzip, with a weight above 0."""
    if scope["method"] == "HEAD":
        return False
    headers = scope["headers"]
    accepted = ",".join([value.decode("latin-1") for name, value in headers if name == b"accept-encoding"])
    found = _GZIP.search(accepted)
    return found is not None and (found[1] is None or found[1].strip("0.") != "")


async def _compress(body: bytes) -> bytes:
    if len(body) <= MAX_INLINE_BYTES:
        return gzip.compress(body, LEVEL)
    return await asyncio.to_thread(gzip.compress, body, LEVEL)
