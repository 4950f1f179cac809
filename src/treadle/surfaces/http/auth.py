"""The gate before every route: to which host, from which site, by whom.

A page in the user's browser may send requests here, and its name may be made to point here: so a request must name
a host that is ours, and come from no other site. A token is taken from the Authorization header alone."""

import asyncio
import re
from collections.abc import Collection
from typing import Any, cast
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.params import QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from treadle.domain.access import OWNER, Principal
from treadle.domain.access import Scope as AccessScope
from treadle.operations.refusal import Refusal
from treadle.operations.token_service import Access
from treadle.surfaces.http.open_streams import OpenStreams
from treadle.surfaces.http.problems import make_problem_response
from treadle.surfaces.http.request_encoding import refuse_invalid_text

PUBLIC_PATHS = ("/healthz", "/readyz")
"""Paths that tell nothing and ask for nothing."""
SIGNED_PATH = re.compile(r"/v1/hooks/[^/]+")
"""What is posted here is signed by its sender, and needs no token; what else is asked here needs one."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
STOPPING_RESPONSE_SECONDS = 1.0
"""For so long whoever is given up may take to hear it."""


class TokenAuthentication:
    """An ASGI application before another."""

    def __init__(
        self,
        app: ASGIApp,
        streams: OpenStreams,
        access: Access,
        hosts: Collection[str] = LOOPBACK_HOSTS,
        origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._streams = streams
        self._access = access
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await respond_unless_stopped(self._let_in, scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._judge(scope)
        except Exception as error:
            await send_problem(error, scope, send)
        else:
            await self._app(scope, receive, send)

    async def _judge(self, scope: Scope) -> None:
        refuse_invalid_text(scope)
        headers = _read_headers(scope, b"host", b"origin", b"authorization")
        host = headers[b"host"].lower()
        if _host_name(host) not in self._hosts:
            raise Refusal(
                421,
                "UnknownHost",
                f"Unknown host `{host[:200]}`. Add the name to `server.hosts` in config.yaml to accept it.",
            )
        self._check_origin(headers[b"origin"], host)
        path, state = scope["path"], state_of(scope)
        state["streams"] = self._streams
        if path in PUBLIC_PATHS:
            return
        secret = _read_bearer(headers[b"authorization"])
        principal = await self._access.principal(secret) if secret else None
        if principal is not None:
            state["principal"], state["secret"] = principal, secret
        elif not (SIGNED_PATH.fullmatch(path) and scope["type"] == "http" and scope["method"] == "POST"):
            raise make_unauthorized()

    def _check_origin(self, origin: str, host: str) -> None:
        if not origin:
            return
        origin = origin.lower().rstrip("/")
        ours = origin.startswith(("http://", "https://")) and _netloc(origin) == host
        if not ours and origin not in self._origins:
            raise Refusal(
                403,
                "ForeignOrigin",
                f"Unknown origin `{origin[:200]}`. Add it to `server.origins` in config.yaml to accept it.",
            )


class OwnerAuthentication:
    """For a socket that only processes of the same user can reach."""

    def __init__(self, app: ASGIApp, streams: OpenStreams) -> None:
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            state_of(scope).update(principal=OWNER, secret="", streams=self._streams)
            await respond_unless_stopped(self._let_in, scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            refuse_invalid_text(scope)
        except Refusal as refusal:
            await send_problem(refusal, scope, send)
        else:
            await self._app(scope, receive, send)


async def respond_unless_stopped(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Have a request answered. A server that stops waits for it for a while, and then gives it up: whoever asked is
    told so, where nothing was said yet."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError as given_up:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise  # something else was, that nobody should have waited for
        try:
            async with asyncio.timeout(STOPPING_RESPONSE_SECONDS):
                await send_problem(
                    Refusal(503, "Stopping", "The server is stopping. Retry the request."), scope, send
                )
        except (RuntimeError, TimeoutError):  # an answer had begun
            raise given_up from None


async def check_request_allowed(request: Request[Any, Any, Any]) -> None:
    """Before anything of a request is read: whether whoever asks may ask that, and so. A guard of Litestar's would
    be given a copy of its route each time."""
    wanted: AccessScope | None = request.route_handler.opt.get("scope")
    if wanted is None:
        return
    principal = principal_of(request)
    if not principal.may(wanted):
        raise Refusal(403, "Forbidden", f"The token `{principal.name}` lacks the scope `{wanted}`.")
    if request.scope["query_string"]:
        _refuse_unknown_parameters(request)


def _refuse_unknown_parameters(request: Request[Any, Any, Any]) -> None:
    """A filter that nobody knows would show what it was meant to leave out."""
    known: Collection[str] | None = request.route_handler.opt.get("query")
    if known is None:  # a hand-written route
        known = {
            field.kwarg_definition.name or name
            for name, field in request.route_handler.parsed_fn_signature.parameters.items()
            if isinstance(field.kwarg_definition, QueryParameter)
        }
    for name in request.query_params:
        if name not in known:
            accepted = f"accepted: {', '.join(sorted(known))}" if known else "none is accepted"
            raise Refusal(400, "UnknownParameter", f"Unknown parameter `{name[:100]}`; {accepted}.")


def make_unauthorized() -> Refusal:
    """What somebody is told who did not say who they are."""
    return Refusal(
        401,
        "Unauthorized",
        "No valid access token. Send `Authorization: Bearer trd_…`; `treadle tokens create` creates a token.",
    )


def principal_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    principal: Principal | None = state_of(connection.scope).get("principal")
    if principal is None:
        raise make_unauthorized()
    return principal


def streams_of(connection: ASGIConnection[Any, Any, Any, Any]) -> OpenStreams:
    """Those that are open behind the same door."""
    return state_of(connection.scope)["streams"]


def state_of(scope: Scope) -> dict[str, Any]:
    """What is known of a request beside what was sent."""
    return cast("dict[str, Any]", scope).setdefault("state", {})


async def send_problem(error: Exception, scope: Scope, send: Send) -> None:
    """Answer with a problem."""
    told = make_problem_response(error, scope["path"], 0.0)
    headers = {"content-type": told.media_type, **told.headers, "content-length": str(len(told.body))}
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": told.status, "headers": encoded})
    await send({"type": "http.response.body", "body": told.body, "more_body": False})


def _read_headers(scope: Scope, *names: bytes) -> dict[bytes, str]:
    """These headers; one that was sent twice is taken for none that can be trusted."""
    found = dict.fromkeys(names, "")
    seen: set[bytes] = set()
    for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]):
        if name in found:
            if name in seen:
                raise Refusal(400, "TwiceTheHeader", f"The header {name.decode()} was sent more than once.")
            seen.add(name)
            found[name] = value.decode("latin-1").strip()
    return found


def _read_bearer(value: str) -> str:
    kind, _, secret = value.partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        return host
    return name if port.isascii() and port.isdecimal() else ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
