"""The routes put together, with what stands before and behind them."""

from collections.abc import Sequence

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from treadle import __version__
from treadle.ports.clock import Clock
from treadle.surfaces.http import (
    agents,
    approvals,
    forks,
    health,
    inbound_webhooks,
    local_admin,
    memory,
    runs,
    schedules,
    sessions,
    streams,
    tokens,
    usage,
    vault,
    webhooks,
)
from treadle.surfaces.http.auth import refuse_what_is_not_allowed
from treadle.surfaces.http.dependencies import Served
from treadle.surfaces.http.idempotency import Once
from treadle.surfaces.http.openai import chat, models, responses
from treadle.surfaces.http.openapi import Description
from treadle.surfaces.http.problems import answer

MOST_BYTES = 32 * 2**20
"""Of the body of a request."""
DESCRIPTION = "/v1/openapi.json"
ROUTES = tuple(room.ROUTES for room in (
    agents, runs, streams, approvals, sessions, memory, vault, tokens, usage, schedules, inbound_webhooks, webhooks,
    local_admin, health, models, chat, responses, forks,
))  # fmt: skip


class Application:
    """The application behind the gates."""

    def __init__(self, served: Served, clock: Clock, routes: Sequence[Router] = ROUTES) -> None:
        self.access = served.access
        self.litestar = Litestar(
            route_handlers=routes,
            before_request=refuse_what_is_not_allowed,
            exception_handlers={Exception: answer},
            request_max_body_size=MOST_BYTES,
            state=State({"served": served, "now": clock.now}),
            openapi_config=_description(),
            logging_config=None,
        )
        self.asgi = Once(self.litestar, served.requests, clock)


def _description() -> OpenAPIConfig:
    bearer = SecurityScheme(type="http", scheme="bearer", description="An access token: trd_…")
    return OpenAPIConfig(
        title="Treadle",
        version=__version__,
        description="Agents behind an API: durable, guarded, observable.",
        components=Components(security_schemes={"token": bearer}),
        security=[{"token": []}],
        use_handler_docstrings=True,
        render_plugins=[Description()],
        path=DESCRIPTION,
    )
