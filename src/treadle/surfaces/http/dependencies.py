"""Requests as routes see them, and the context in which they are answered."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request
from starlette.types import Receive, Scope

from treadle.operations.context import Context
from treadle.surfaces.http.auth import get_principal, get_state, get_streams
from treadle.surfaces.http.body_limit import make_size_refusal
from treadle.surfaces.http.idempotency import submission_key
from treadle.surfaces.http.openai.waiting_clients import WaitingClients
from treadle.surfaces.http.siblings import Siblings
from treadle.surfaces.http.sign_in_limit import SignInLimit

TRACE_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""A `traceparent` of version 00. A trace or a span of zeros is invalid."""


@dataclass
class Services:
    """What the routes of an application use."""

    context: Context
    now: Callable[[], float]
    siblings: Siblings | None = None
    """The other processes behind the same port, if there are some."""
    sign_in_limit: SignInLimit = field(default_factory=SignInLimit)
    waiting_clients: WaitingClients = field(default_factory=WaitingClients)


class ApiRequest(Request):
    """A request for a route."""

    def __init__(self, scope: Scope, receive: Receive, services: Services, max_body_bytes: int) -> None:
        super().__init__(scope, receive)
        self.services = services
        self._max_body_bytes = max_body_bytes

    async def body(self) -> bytes:
        """Return the body. Raise Refusal as soon as more has arrived than the route accepts."""
        body = bytearray()
        async for chunk in self.stream():
            body += chunk
            if len(body) > self._max_body_bytes:
                raise make_size_refusal(self._max_body_bytes)
        return bytes(body)


def get_context(request: ApiRequest) -> Context:
    """Return the context of a request: its principal, its idempotency key, and the services of the engine. A caller
    with a cookie is asked in the dashboard."""
    return get_services(request).for_caller(
        get_principal(request),
        submission_key(request.scope),
        "dashboard" if "cookie" in get_state(request.scope) else "api",
        partial(_wait_for_departure, request),
        _read_trace_parent(request),
    )


def _read_trace_parent(request: ApiRequest) -> str:
    """Return the `traceparent` of the request, or nothing if it is invalid, as the standard demands."""
    header = request.headers.get("traceparent", "")
    return header if TRACE_PARENT.fullmatch(header) else ""


def act_for_user(request: ApiRequest, name: str | None) -> None:
    """Continue a request on behalf of a user whom its sender serves, if it names one."""
    get_state(request.scope)["principal"] = get_principal(request).for_user(name or None)


def get_services(request: ApiRequest) -> Context:
    """Return the services of the engine, for a route that needs no principal."""
    return request.services.context


async def _wait_for_departure(request: ApiRequest) -> None:
    """Return when the client has disconnected, or the server is about to close."""
    leaving = asyncio.ensure_future(wait_for_disconnect(request))
    closing = asyncio.ensure_future(get_streams(request).closed.wait())
    try:
        await asyncio.wait((leaving, closing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        closing.cancel()


async def wait_for_disconnect(request: ApiRequest) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
