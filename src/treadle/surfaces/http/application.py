"""The application: all routes, and what handles a request before and after them."""

from collections.abc import Sequence
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from treadle.operations.context import Context
from treadle.ports.clock import Clock
from treadle.surfaces.http import health, inbound_webhooks, openapi, runs, streams
from treadle.surfaces.http.auth import refuse_what_is_not_allowed
from treadle.surfaces.http.idempotency import Once
from treadle.surfaces.http.openai import chat, models, responses
from treadle.surfaces.http.operation_routes import operation_routes
from treadle.surfaces.http.problems import answer

MOST_BYTES = 32 * 2**20
"""The largest body of a request."""
DESCRIPTION = openapi.PATH
HAND_WRITTEN: tuple[Any, ...] = tuple(
    route
    for module in (runs, streams, inbound_webhooks, health, models, chat, responses, openapi)
    for route in module.ROUTES
)


def all_routes() -> list[HTTPRouteHandler]:
    return [*operation_routes(), *HAND_WRITTEN]


class Application:
    """The application behind authentication."""

    def __init__(self, context: Context, clock: Clock, routes: Sequence[HTTPRouteHandler] | None = None) -> None:
        self.access = context.access
        self.litestar = Litestar(
            route_handlers=all_routes() if routes is None else routes,
            before_request=refuse_what_is_not_allowed,
            exception_handlers={Exception: answer},
            request_max_body_size=MOST_BYTES,
            state=State({"context": context, "now": clock.now}),
            openapi_config=None,
            logging_config=None,
        )
        self.asgi = Once(self.litestar, context.requests, clock)
