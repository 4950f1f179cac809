"""The Litestar application: all routes, and what handles a request before and after them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from treadle.operations.context import Context
from treadle.ports.clock import Clock
from treadle.surfaces.http import channel_webhooks, health, inbound_webhooks, openapi, sign_in, streams
from treadle.surfaces.http.auth import check_request_allowed
from treadle.surfaces.http.body_limit import MAX_BODY_BYTES, BodyLimit
from treadle.surfaces.http.idempotency import IdempotencyMiddleware
from treadle.surfaces.http.mcp_mount import McpMount
from treadle.surfaces.http.openai import chat, models, responses
from treadle.surfaces.http.operation_routes import make_operation_routes
from treadle.surfaces.http.problems import handle_exception
from treadle.surfaces.http.siblings import Siblings

DESCRIPTION_PATH = openapi.PATH
HAND_WRITTEN_ROUTES: tuple[Any, ...] = tuple(
    route
    for module in (
        streams,
        sign_in,
        inbound_webhooks,
        channel_webhooks,
        health,
        models,
        chat,
        responses,
        openapi,
    )
    for route in module.ROUTES
)


def all_routes() -> list[HTTPRouteHandler]:
    return [*make_operation_routes(), *HAND_WRITTEN_ROUTES]


class Application:
    """The application, without authentication."""

    def __init__(self, context: Context, clock: Clock, routes: Sequence[HTTPRouteHandler] | None = None) -> None:
        self.access = context.access
        self.sign_ins = context.sign_ins
        self.has_pages = routes is None
        """Whether the dashboard is served too."""
        self.address: str | None = None
        """The URL of the listener, once there is one."""
        context = replace(context, address=lambda: self.address)
        self.litestar = Litestar(
            route_handlers=all_routes() if routes is None else routes,
            before_request=check_request_allowed,
            exception_handlers={Exception: handle_exception},
            request_max_body_size=MAX_BODY_BYTES,
            state=State({"context": context, "now": clock.now, "siblings": None}),
            openapi_config=None,
            logging_config=None,
        )
        self._idempotency = IdempotencyMiddleware(self.litestar, context.requests, clock)
        self._mcp = McpMount(self._idempotency, context, context.home if routes is None else None)
        self.asgi = BodyLimit(self._mcp)

    def use_siblings(self, siblings: Siblings) -> None:
        """Serve together with other processes behind the same port."""
        self._idempotency.hold = siblings.hold
        self.litestar.state["sign_in_limit"] = sign_in.SharedSignInLimit(siblings.sign_in_failures)
        state = self.litestar.state
        state["siblings"] = self._mcp.siblings = siblings
        state["context"] = replace(state["context"], list_processes=siblings.describe)

    async def close(self) -> None:
        """End the sessions of MCP clients."""
        await self._mcp.close()
