"""The HTTP application: all routes, and what handles a request before and after them."""

from collections.abc import Sequence
from dataclasses import replace

from treadle.operations.context import Context
from treadle.ports.clock import Clock
from treadle.surfaces.http import channel_webhooks, health, inbound_webhooks, openapi, sign_in, streams
from treadle.surfaces.http.ag_ui import routes as ag_ui
from treadle.surfaces.http.body_limit import BodyLimit
from treadle.surfaces.http.dependencies import Services
from treadle.surfaces.http.idempotency import IdempotencyMiddleware
from treadle.surfaces.http.mcp_mount import McpMount
from treadle.surfaces.http.openai import chat, models, responses, stored_responses
from treadle.surfaces.http.operation_routes import make_operation_routes
from treadle.surfaces.http.routing import HttpRoute, Router
from treadle.surfaces.http.siblings import Siblings
from treadle.surfaces.http.sign_in_limit import SharedSignInLimit

DESCRIPTION_PATH = openapi.PATH
HAND_WRITTEN_ROUTES = tuple(
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
        stored_responses,
        ag_ui,
        openapi,
    )
    for route in module.ROUTES
)


def all_routes() -> list[HttpRoute]:
    return [*make_operation_routes(), *HAND_WRITTEN_ROUTES]


class Application:
    """The application, without authentication."""

    def __init__(
        self, context: Context, clock: Clock, routes: Sequence[HttpRoute] | None = None, *, has_mcp: bool = True
    ) -> None:
        self.access = context.access
        self.sign_ins = context.sign_ins
        self.has_pages = routes is None
        """Whether the dashboard is served too."""
        self.address: str | None = None
        """The URL of the listener, once there is one."""
        self.routes = all_routes() if routes is None else routes
        self._services = Services(replace(context, address=lambda: self.address), clock.now)
        self.waiting_clients = self._services.waiting_clients
        self._idempotency = IdempotencyMiddleware(Router(self.routes, self._services), context.requests, clock)
        home = context.home if self.has_pages and has_mcp else None
        self._mcp = McpMount(self._idempotency, self._services.context, home)
        self.asgi = BodyLimit(self._mcp)

    def use_siblings(self, siblings: Siblings) -> None:
        """Serve together with other processes behind the same port."""
        self._idempotency.hold = siblings.hold
        self._services.siblings = self._mcp.siblings = siblings
        self._services.sign_in_limit = SharedSignInLimit(siblings.sign_in_failures)
        self._services.context = replace(self._services.context, list_processes=siblings.describe)

    async def close(self) -> None:
        """End the sessions of MCP clients."""
        await self._mcp.close()
