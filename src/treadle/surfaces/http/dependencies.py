"""Access to the context of a request, for hand-written routes."""

import asyncio
from functools import partial
from typing import Any

from litestar import Request
from litestar.datastructures import State

from treadle.operations.context import Context
from treadle.surfaces.http.auth import get_principal, get_state, get_streams
from treadle.surfaces.http.idempotency import submission_key

ApiRequest = Request[Any, Any, State]


def get_context(request: ApiRequest) -> Context:
    """Return the context of a request: its principal, its idempotency key, and the services of the engine. A caller
    with a cookie is asked in the dashboard."""
    return get_services(request).for_caller(
        get_principal(request),
        submission_key(request.scope),
        "dashboard" if "cookie" in get_state(request.scope) else "api",
        partial(_wait_for_departure, request),
    )


def act_for_user(request: ApiRequest, name: str | None) -> None:
    """Continue a request on behalf of a user whom its sender serves, if it names one."""
    get_state(request.scope)["principal"] = get_principal(request).for_user(name or None)


def get_services(request: ApiRequest) -> Context:
    """Return the services of the engine, for a route that needs no principal."""
    return request.app.state.context


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
