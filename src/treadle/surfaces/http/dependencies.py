"""Access to the context of a request, for hand-written routes."""

from typing import Any

from litestar import Request
from litestar.datastructures import State

from treadle.domain.permissions import Asker
from treadle.operations.context import Context
from treadle.surfaces.http.auth import principal_of, state_of
from treadle.surfaces.http.idempotency import submission_key

ApiRequest = Request[Any, Any, State]


def context_of(request: ApiRequest) -> Context:
    """Return the context of a request: its principal, its idempotency key, and the services of the engine."""
    return services_of(request).for_caller(principal_of(request), submission_key(request.scope))


def services_of(request: ApiRequest) -> Context:
    """Return the services of the engine, for a route that needs no principal."""
    return request.app.state.context


def asker_of(request: ApiRequest) -> Asker | None:
    """Return where the sender of a request can be asked, if they may answer: in the dashboard, or by the API."""
    asker = context_of(request).asker
    return "dashboard" if asker is not None and "cookie" in state_of(request.scope) else asker
