"""Idempotency keys: repeating a request with the same `Idempotency-Key` returns the first response.

A key belongs to a token and a route, and is stored for a day. The journal also records a run or a message under
its key: a server that dies between the work and storing the response still does the work once. A failed request
has had no effect and can be retried, but never with another body under the same key."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.domain.access import Principal
from treadle.domain.errors import StoreError
from treadle.operations.operation import make_journal_key
from treadle.operations.refusal import Refusal
from treadle.ports.access import IdempotencyStore, IdempotentRequest, StoredResponse
from treadle.ports.clock import Clock
from treadle.surfaces.http.auth import get_state, send_problem
from treadle.surfaces.http.body_limit import MAX_BODY_BYTES, make_size_refusal
from treadle.surfaces.http.problems import MEDIA_TYPE, make_problem

logger = logging.getLogger(__name__)

HEADER = b"idempotency-key"
MAX_KEY_CHARACTERS = 255
RETENTION_SECONDS = 24 * 3600
SWEEP_INTERVAL_SECONDS = 3600
REPLAYED_HEADER = (b"idempotent-replayed", b"true")
SECRET_ROUTES = re.compile(
    "/v1/(tokens|webhooks|stream-tickets|dashboard/links|hooks(/[^/]+/rotate)?|channels/[^/]+/pair)"
)
"""Routes whose responses contain a secret, which is not stored."""


class IdempotencyMiddleware:
    """ASGI middleware after authentication."""

    def __init__(self, app: ASGIApp, requests: IdempotencyStore, clock: Clock) -> None:
        self._app = app
        self._requests = requests
        self._clock = clock
        self._locks: WeakValueDictionary[IdempotentRequest, asyncio.Lock] = WeakValueDictionary()
        self._swept_at = 0.0
        self.hold: Callable[[str], AbstractAsyncContextManager[None]] = _hold_nothing
        """Keeps other processes behind the same port from handling a request meanwhile."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _read_key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            request_id = _make_request_id(scope, key)
            body = await _read_body(receive)
        except Refusal as refusal:
            await send_problem(refusal, scope, send)
            return
        if body is None:
            return
        lock = self._locks.setdefault(request_id, asyncio.Lock())
        async with lock, self.hold(_make_name(request_id)):
            await self._respond(request_id, body, scope, receive, send)

    async def _respond(
        self, request_id: IdempotentRequest, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        digest = hashlib.sha256(body).digest()
        try:
            stored = await self._requests.begin(request_id, digest, self._clock.now())
            await self._sweep()
            if stored.digest != digest:
                raise Refusal(422, "KeyReused", "This Idempotency-Key was used with another body. Send a new key.")
        except Exception as error:
            await send_problem(error, scope, send)
            return
        if stored.status is not None:
            await _send_stored(stored, send)
            return
        held = _HeldResponse(send)
        await self._app(scope, _replay_body(body, receive), held)
        if held.status < 400 and not held.streams:
            try:
                await self._requests.answer(request_id, _make_stored_response(request_id, digest, held))
            except StoreError as error:  # the request succeeded, so the client gets its response
                logger.warning("the response to an idempotent request could not be stored: %s", error)
        await held.release()

    async def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept_at > SWEEP_INTERVAL_SECONDS:
            self._swept_at = now
            await self._requests.forget(now - RETENTION_SECONDS)


def submission_key(scope: Scope) -> str | None:
    """Return the key under which the journal records the run that a request starts, or None if the request has no
    key."""
    key = _read_key(scope)
    if key is None:
        return None
    request_id = _make_request_id(scope, key)
    return make_journal_key(request_id.token_id, request_id.route, request_id.key)


def _make_name(request: IdempotentRequest) -> str:
    """Return a name for a request that can be that of a file."""
    parts = "\n".join((request.token_id or "", request.route, request.key))
    return hashlib.sha256(parts.encode()).hexdigest()


def _hold_nothing(name: str) -> AbstractAsyncContextManager[None]:
    """Hold nothing: no other process handles requests."""
    del name
    return nullcontext()


def _read_key(scope: Scope) -> str | None:
    """Return the key of a request, or None if it has no key or no caller. Signed requests have an id of their
    own."""
    if scope["type"] != "http" or scope["method"] != "POST" or "principal" not in get_state(scope):
        return None
    for name, value in scope["headers"]:
        if name == HEADER:
            return value.decode("latin-1")
    return None


def _make_request_id(scope: Scope, key: str) -> IdempotentRequest:
    if not 0 < len(key) <= MAX_KEY_CHARACTERS or not key.isprintable():
        raise Refusal(
            400, "WrongKey", f"The Idempotency-Key is invalid: send 1 to {MAX_KEY_CHARACTERS} visible characters."
        )
    principal: Principal = get_state(scope)["principal"]
    route = scope["path"] if principal.served is None else f"{scope['path']} for {principal.user}"
    return IdempotentRequest(principal.token_id, route, key)


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body, or None if the client disconnected while sending it."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise make_size_refusal()
        if not message.get("more_body"):
            return bytes(body)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields a body that was already read, and then further messages."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class _HeldResponse:
    """Holds a response back until it is stored. A streaming response is sent on as it arrives."""

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
            self.body += message.get("body", b"")
        if self.streams:
            await self._send(message)
        else:
            self._held.append(message)

    async def release(self) -> None:
        for message in self._held:
            await self._send(message)


def _make_stored_response(request_id: IdempotentRequest, digest: bytes, held: _HeldResponse) -> StoredResponse:
    """Return the response for a repeated request: the same, except that a secret is shown only once."""
    if SECRET_ROUTES.fullmatch(request_id.route) is None:
        return StoredResponse(digest, held.status, bytes(held.body))
    detail = (
        "A request with this Idempotency-Key already succeeded, and its secret was shown then. "
        "Send a new key to create another."
    )
    problem = make_problem(Refusal(409, "ShownOnce", detail))
    return StoredResponse(digest, problem.status, msgspec.json.encode(problem))


async def _send_stored(stored: StoredResponse, send: Send) -> None:
    status = stored.status or 200
    kind = b"application/json" if status < 400 else MEDIA_TYPE.encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(stored.body)).encode()), REPLAYED_HEADER]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": stored.body, "more_body": False})
