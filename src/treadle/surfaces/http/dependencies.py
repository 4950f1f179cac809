"""Access to the context of a request, for hand-written routes."""

from typing import Any

from litestar import Request
from litestar.datastructures import State

from treadle.domain.permissions import Asker
from treadle.operations.context import Context
from treadle.surfaces.http.auth import get_principal, get_state
from treadle.surfaces.http.idempotency import submission_key

ApiRequest = Request[Any, Any, State]


def get_context(request: ApiRequest) -> Context:
    """Return the context of a request: its principal, its idempotency key, and the services of the engine."""
    return get_services(request).for_caller(get_principal(request), submission_key(request.scope))


def act_for_user(request: ApiRequest, name: str | None) -> None:
    """Continue a request on behalf of a user whom its sender serves, if it names one."""
    get_state(request.scope)["principal"] = get_principal(request).for_user(name or None)


def get_services(request: ApiRequest) -> Context:
    """Return the services of the engine, for a route that needs no principal."""
    return request.app.state.context


def find_asker(request: ApiRequest) -> Asker | None:
    """Return where the sender of a request can be asked, if they may answer: in the dashboard, or by the API."""
    asker = get_context(request).asker
    return "dashboard" if asker is not None and "cookie" in get_state(request.scope) else asker
