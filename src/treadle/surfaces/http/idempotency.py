"""Requests that must not be done twice: the same `Idempotency-Key` again gets the first answer again.

A key belongs to a token and a route, and is kept for a day. A run or a message is kept under its key in the journal
too: a server that dies between doing it and noting the answer still does it once. What failed has done nothing, and
is tried again; but never with another body under the same key."""

import asyncio
import hashlib
import logging
from typing import cast
from weakref import WeakValueDictionary

import msgspec
from litestar.types import ASGIApp, HTTPReceiveMessage, Message, Receive, Scope, Send

from treadle.domain.access import Principal
from treadle.domain.errors import SizeLimitExceeded, StoreError
from treadle.operations.refusal import Refusal
from treadle.ports.access import IdempotencyStore, IdempotentRequest, StoredResponse
from treadle.ports.clock import Clock
from treadle.surfaces.http.auth import send_problem, state_of
from treadle.surfaces.http.problems import MEDIA_TYPE, make_problem

logger = logging.getLogger(__name__)

HEADER = b"idempotency-key"
MAX_KEY_CHARACTERS = 255
RETENTION_SECONDS = 24 * 3600
SWEEP_INTERVAL_SECONDS = 3600
MAX_BODY_BYTES = 32 * 2**20
"""Of a body that comes with a key: it is read whole before anything is done."""
REPLAYED_HEADER = (b"idempotent-replayed", b"true")
SECRET_ROUTES = ("/v1/tokens", "/v1/hooks", "/v1/webhooks")
"""Routes whose answers have a secret in them, which is kept nowhere."""


class IdempotencyMiddleware:
    """An ASGI application before another, behind the gate."""

    def __init__(self, app: ASGIApp, requests: IdempotencyStore, clock: Clock) -> None:
        self._app = app
        self._requests = requests
        self._clock = clock
        self._under_way: WeakValueDictionary[IdempotentRequest, asyncio.Lock] = WeakValueDictionary()
        self._swept_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _read_key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            asked = _make_request_id(scope, key)
            body = await _read_body(receive)
        except Refusal as refusal:
            await send_problem(refusal, scope, send)
            return
        if body is None:
            return
        lock = self._under_way.setdefault(asked, asyncio.Lock())
        async with lock:
            await self._answer(asked, body, scope, receive, send)

    async def _answer(
        self, asked: IdempotentRequest, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        digest = hashlib.sha256(body).digest()
        try:
            known = await self._requests.begin(asked, digest, self._clock.now())
            await self._sweep()
            if known.digest != digest:
                raise Refusal(422, "KeyReused", "This Idempotency-Key was used with another body. Send a new key.")
        except Exception as error:
            await send_problem(error, scope, send)
            return
        if known.status is not None:
            await _send_stored(known, send)
            return
        kept = _HeldResponse(send)
        await self._app(scope, _replay_body(body, receive), kept)
        if kept.status < 400 and not kept.streams:
            try:
                await self._requests.answer(asked, _make_stored_response(asked, digest, kept))
            except StoreError as error:  # it is done, and whoever asked is told so
                logger.warning("the answer to a request could not be kept: %s", error)
        await kept.let_go()

    async def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept_at > SWEEP_INTERVAL_SECONDS:
            self._swept_at = now
            await self._requests.forget(now - RETENTION_SECONDS)


def submission_key(scope: Scope) -> str | None:
    """Return the key under which the journal records what a request begins; None: the request has no key."""
    key = _read_key(scope)
    if key is None:
        return None
    asked = _make_request_id(scope, key)
    return f"http/{asked.token_id or 'owner'}/{asked.route}/{asked.key}"


def _read_key(scope: Scope) -> str | None:
    """The key of a request; None: it has none, or nobody who asks (what is signed has an id of its own)."""
    if scope["type"] != "http" or scope["method"] != "POST" or "principal" not in state_of(scope):
        return None
    for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
        if name == HEADER:
            return value.decode("latin-1")
    return None


def _make_request_id(scope: Scope, key: str) -> IdempotentRequest:
    if not 0 < len(key) <= MAX_KEY_CHARACTERS or not key.isprintable():
        raise Refusal(
            400, "WrongKey", f"The Idempotency-Key is invalid: send 1 to {MAX_KEY_CHARACTERS} visible characters."
        )
    principal: Principal = state_of(scope)["principal"]
    return IdempotentRequest(principal.token_id, scope["path"], key)


async def _read_body(receive: Receive) -> bytes | None:
    """All of it; None: whoever sent it has gone in the middle, and nothing is to be done."""
    body = bytearray()
    while True:
        message = cast("HTTPReceiveMessage", await receive())
        if message["type"] != "http.request":
            return None
        body += message["body"]
        if len(body) > MAX_BODY_BYTES:
            raise Refusal(
                413,
                SizeLimitExceeded.__name__,
                f"The body has more than {MAX_BODY_BYTES} bytes. Send less at once.",
            )
        if not message["more_body"]:
            return bytes(body)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Give a body that was read already to whoever asks for it, and then what comes."""
    given = False

    async def from_here() -> HTTPReceiveMessage:
        nonlocal given
        if given:
            return cast("HTTPReceiveMessage", await receive())
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return from_here  # pyright: ignore[reportReturnType] -- a request has no other messages


class _HeldResponse:
    """Holds an answer back until it is kept; one that streams is sent on as it comes."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self.status = 500
        self.body = bytearray()
        self.streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self.streams = any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif message["type"] == "http.response.body" and not self.streams:
            self.body += message["body"]
        if self.streams:
            await self._send(message)
        else:
            self._held.append(message)

    async def let_go(self) -> None:
        for message in self._held:
            await self._send(message)


def _make_stored_response(asked: IdempotentRequest, digest: bytes, kept: _HeldResponse) -> StoredResponse:
    """What is told to whoever sends it again: the same; but a secret is shown once."""
    if asked.route.rstrip("/") not in SECRET_ROUTES:
        return StoredResponse(digest, kept.status, bytes(kept.body))
    once = (
        "What this Idempotency-Key asked for was made, and its secret was shown then. Make another with a new key."
    )
    problem = make_problem(Refusal(409, "ShownOnce", once))
    return StoredResponse(digest, problem.status, msgspec.json.encode(problem))


async def _send_stored(known: StoredResponse, send: Send) -> None:
    status = known.status or 200
    kind = b"application/json" if status < 400 else MEDIA_TYPE.encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(known.body)).encode()), REPLAYED_HEADER]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": known.body, "more_body": False})
