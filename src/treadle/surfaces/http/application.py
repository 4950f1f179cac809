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
    attached,
    forks,
    hooks,
    memory,
    operations,
    runs,
    schedules,
    sessions,
    streams,
    tokens,
    usage,
    vault,
    webhooks,
)
from treadle.surfaces.http.compatible import chat, models, responses
from treadle.surfaces.http.describing import Description
from treadle.surfaces.http.gate import refuse_what_is_not_allowed
from treadle.surfaces.http.once import Once
from treadle.surfaces.http.problems import answer
from treadle.surfaces.http.served import Served

MOST_BYTES = 32 * 2**20
"""Of the body of a request."""
DESCRIPTION = "/v1/openapi.json"
ROUTES = tuple(room.ROUTES for room in (
    agents, runs, streams, approvals, sessions, memory, vault, tokens, usage, schedules, hooks, webhooks, attached,
    operations, models, chat, responses, forks,
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
