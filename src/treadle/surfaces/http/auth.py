"""Authentication in front of every route: checks the host, the origin and the caller of a request.

A page in the user's browser may send requests here, and its name may resolve to this server. A request must
therefore name one of the server's hosts and must not come from another site. Tokens are accepted only in the
Authorization header."""

import asyncio
import re
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.domain.access import OWNER, Principal
from treadle.operations.refusal import Refusal
from treadle.operations.sign_in_service import SignInService
from treadle.operations.token_service import TokenService
from treadle.surfaces.http import cookies, cors
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.problems import make_problem_response
from treadle.surfaces.http.request_encoding import refuse_invalid_text

USER_HEADER = b"x-treadle-user"
"""Names the user that a request is for, of those whom a token serves."""
MAX_SERVED_CHARACTERS = 1000
PUBLIC_PATHS = ("/healthz", "/readyz")
"""Paths that reveal nothing and need no token."""
SIGNED_PATH = re.compile(r"/v1/(?:hooks/[^/]+|channels/[^/]+/webhook)")
"""A POST to this path is signed by its sender and needs no token. Other methods need one."""
ANY_HOST = "*"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
STOPPING_RESPONSE_SECONDS = 1.0
"""How long a client may take to receive the response that the server is stopping."""


Hold = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Holds a stream open until its token or its sign-in ends; then it calls the function."""


class Authentication:
    """ASGI middleware that checks each request: its text, host and origin, and who sends it."""

    hosts_setting = "`server.hosts` in config.yaml"
    origins_setting = "`server.origins` in config.yaml"

    def __init__(
        self, app: ASGIApp, streams: OpenStreams, hosts: Collection[str], origins: Collection[str]
    ) -> None:
        self._app = app
        self._streams = streams
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def identify(self, scope: Scope, headers: dict[bytes, str], host: str) -> None:
        """Note in the state of a request who sends it. Raise an error unless that is known, or need not be."""
        raise NotImplementedError

    def secure(self, scope: Scope, send: Send) -> Send:
        """Return how the response is sent: to a browser with headers that keep its content inert."""
        return cookies.secure_responses(send) if "cookie" in get_state(scope) else send

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond_unless_stopped(self._handle, scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = self._find_allowed_origin(scope)
        if origin is not None:
            if cors.is_preflight(scope):
                await cors.answer_preflight(scope, origin, send)
                return
            send = cors.allow_origin(origin, send)
        try:
            await self._check(scope)
        except Exception as error:
            await send_problem(error, scope, send)
        else:
            await self._app(scope, receive, self.secure(scope, send))

    async def _check(self, scope: Scope) -> None:
        refuse_invalid_text(scope)
        headers = _read_headers(
            scope,
            *(b"host", b"origin", b"authorization", b"cookie", b"sec-fetch-site", cookies.HEADER),
            USER_HEADER,
        )
        host = headers[b"host"].lower()
        self._check_host(host)
        self._check_origin(headers[b"origin"], host)
        get_state(scope)["streams"] = self._streams
        await self.identify(scope, headers, host)

    def knows_host(self, host: str) -> bool:
        """Return whether a `Host` header names this server."""
        return _host_name(host.lower()) in self._hosts or ANY_HOST in self._hosts

    def _check_host(self, host: str) -> None:
        if not self.knows_host(host):
            raise Refusal(
                421,
                "UnknownHost",
                f"Unknown host `{host[:200]}`. Add the name to {self.hosts_setting} to accept it.",
            )

    def _find_allowed_origin(self, scope: Scope) -> str | None:
        """Return the origin of a request if it is one of those allowed, and its host is one of the server's."""
        found = dict(scope["headers"])
        origin, host = found.get(b"origin", b"").decode("latin-1"), found.get(b"host", b"").decode("latin-1")
        return origin if self.allows_origin(origin) and self.knows_host(host) else None

    def allows_origin(self, origin: str) -> bool:
        """Return whether pages of another origin may send requests here."""
        return origin.lower().rstrip("/") in self._origins

    def _check_origin(self, origin: str, host: str) -> None:
        if origin and not is_own_origin(host, origin) and not self.allows_origin(origin):
            raise Refusal(
                403,
                "ForeignOrigin",
                f"Unknown origin `{origin.lower()[:200]}`. Add it to {self.origins_setting} to accept it.",
            )


class TokenAuthentication(Authentication):
    """Authenticates requests by token, stream ticket or session cookie."""

    def __init__(
        self,
        app: ASGIApp,
        streams: OpenStreams,
        access: TokenService,
        sign_ins: SignInService,
        hosts: Collection[str] = LOOPBACK_HOSTS,
        origins: Collection[str] = (),
    ) -> None:
        super().__init__(app, streams, hosts, origins)
        self._access = access
        self._sign_ins = sign_ins

    async def identify(self, scope: Scope, headers: dict[bytes, str], host: str) -> None:
        path, state = scope["path"], get_state(scope)
        if path in PUBLIC_PATHS:
            return
        principal, hold = await self._find_principal(scope, headers, host)
        if principal is not None:
            state["principal"] = principal.for_user(_read_served_user(headers[USER_HEADER]))
            state["hold"] = hold
        elif not _needs_no_token(path, scope["method"]):
            raise make_unauthorized()
        elif path == cookies.SIGN_IN_PATH:
            cookies.check_same_origin(scope, headers, partial(is_own_origin, host))

    async def _find_principal(
        self, scope: Scope, headers: dict[bytes, str], host: str
    ) -> tuple[Principal | None, Hold | None]:
        """Return who sends a request, and how to notice that they no longer may: by a token, a stream ticket or a
        session cookie."""
        ticket = take_ticket(scope)
        if headers[b"authorization"]:
            return await self._read_token(headers)
        if ticket is None:
            return await self._read_sign_in(scope, headers, host)
        found = await self._access.read_ticket(ticket, scope["path"]) if _is_get(scope) else None
        if found is None:
            return None, None
        return found[0], partial(self._access.hold_ticket, found[1], found[0])

    async def _read_token(self, headers: dict[bytes, str]) -> tuple[Principal | None, Hold | None]:
        """Return who the token in the Authorization header stands for."""
        secret = _read_bearer(headers[b"authorization"])
        principal = await self._access.principal(secret) if secret else None
        return principal, None if principal is None else partial(self._access.cut_when_invalid, secret, principal)

    async def _read_sign_in(
        self, scope: Scope, headers: dict[bytes, str], host: str
    ) -> tuple[Principal | None, Hold | None]:
        """Return who the session cookie stands for, if it counts for this request."""
        cookie = cookies.read_cookie(scope, headers[b"cookie"])
        principal = await self._sign_ins.principal(cookie) if cookie else None
        if principal is None:
            return None, None
        cookies.check_same_origin(scope, headers, partial(is_own_origin, host))
        get_state(scope)["cookie"] = cookie
        return principal, partial(self._sign_ins.cut_when_invalid, cookie)


class OwnerAuthentication:
    """ASGI middleware for a socket that only processes of the same user can reach."""

    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            get_state(scope).update(principal=OWNER, hold=_hold_forever, streams=self._streams)
            await respond_unless_stopped(self._handle, scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            refuse_invalid_text(scope)
        except Refusal as refusal:
            await send_problem(refusal, scope, send)
        else:
            await self._app(scope, receive, send)


async def respond_unless_stopped(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Handle a request. If the server stops and cancels it before a response has started, respond with 503."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise  # something inside was cancelled, not this request
        try:
            async with asyncio.timeout(STOPPING_RESPONSE_SECONDS):
                await send_problem(
                    Refusal(503, "Stopping", "The server is stopping. Retry the request."), scope, send
                )
        except (RuntimeError, TimeoutError):  # a response had already started
            raise cancelled from None


def make_unauthorized() -> Refusal:
    """Return the refusal of a request without a valid token."""
    return Refusal(
        401,
        "Unauthorized",
        "No valid access token. Send `Authorization: Bearer trd_…`; `treadle tokens create` creates a token.",
    )


def get_principal(connection: HTTPConnection) -> Principal:
    principal: Principal | None = get_state(connection.scope).get("principal")
    if principal is None:
        raise make_unauthorized()
    return principal


def get_streams(connection: HTTPConnection) -> OpenStreams:
    """Return the open streams of the same listener."""
    return get_state(connection.scope)["streams"]


def get_state(scope: Scope) -> dict[str, Any]:
    """Return the state of a request: what the server knows about it beyond its content."""
    return scope.setdefault("state", {})


async def send_problem(error: Exception, scope: Scope, send: Send) -> None:
    """Send a problem as the response."""
    await make_problem_response(error, scope["path"], 0.0)(scope, _receive_nothing, send)


async def _receive_nothing() -> Message:
    raise AssertionError("a problem is sent without reading the request")


def _read_served_user(value: str) -> str | None:
    """Return the user that a header names, or None. Headers are read as latin-1, and names are sent as UTF-8."""
    if len(value) > MAX_SERVED_CHARACTERS:
        raise Refusal(400, "WrongUser", f"X-Treadle-User is too long. Use at most {MAX_SERVED_CHARACTERS} bytes.")
    return value.encode("latin-1").decode("utf-8", "replace") or None


def _read_headers(scope: Scope, *names: bytes) -> dict[bytes, str]:
    """Return these headers. Raise Refusal if one was sent twice."""
    found = dict.fromkeys(names, "")
    seen: set[bytes] = set()
    for name, value in scope["headers"]:
        if name in found:
            if name in seen:
                raise Refusal(400, "TwiceTheHeader", f"The header {name.decode()} was sent more than once.")
            seen.add(name)
            found[name] = value.decode("latin-1").strip()
    return found


def take_ticket(scope: Scope) -> str | None:
    """Remove the ticket from the query of a request and return it, so that neither a route nor a log sees it."""
    parts = scope["query_string"].split(b"&")
    found = [part for part in parts if part.startswith(b"ticket=")]
    if not found:
        return None
    scope["query_string"] = b"&".join(part for part in parts if part not in found)
    return found[0].removeprefix(b"ticket=").decode("latin-1")


def _is_get(scope: Scope) -> bool:
    return scope["method"] == "GET"


def _read_bearer(value: str) -> str:
    kind, _, secret = value.partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        return host
    return name if port.isascii() and port.isdecimal() else ""


def _hold_forever(cut: Callable[[], None]) -> AbstractContextManager[None]:
    """Hold a stream of a process of the same user, whose right does not end."""
    del cut
    return nullcontext()


def _needs_no_token(path: str, method: str) -> bool:
    """Return whether the request carries its own proof, such as a signature, or asks only who the caller is."""
    if path == cookies.IDENTITY_PATH:
        return method == "GET"
    return method == "POST" and (path == cookies.SIGN_IN_PATH or SIGNED_PATH.fullmatch(path) is not None)


def is_own_origin(host: str, origin: str) -> bool:
    """Return whether an origin is that of this server."""
    origin = origin.lower().rstrip("/")
    return origin.startswith(("http://", "https://")) and _netloc(origin) == host


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
