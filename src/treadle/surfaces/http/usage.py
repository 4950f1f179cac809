"""What was used."""

from typing import Annotated

from litestar import Router, get
from litestar.params import FromQuery, QueryParameter

from treadle.operations.schemas import Page
from treadle.operations.usage import UsageLine, UsageQuery
from treadle.ports.accounts import UsageKey
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, agents_of, served_of
from treadle.surfaces.http.openapi import asks

Day = Annotated[str | None, QueryParameter(pattern=r"^\d{4}-\d{2}-\d{2}$", description="A day in UTC: 2026-03-01.")]


@get("/v1/usage", **asks("read", "Get usage by agent, token, model or day"))
async def usage(
    request: Asked,
    by: FromQuery[UsageKey] = "agent",
    agent: FromQuery[str | None] = None,
    since: Day = None,
    until: Day = None,
) -> Page[UsageLine]:
    """A token with the visibility `own` sees its own usage."""
    principal = principal_of(request)
    token = None if principal.only_owner is None else principal.token_id
    query = UsageQuery(by, agents_of(principal, agent), since, until, token)
    return Page(tuple(await served_of(request).service.usage(query)))


ROUTES = Router("/", route_handlers=[usage], tags=["usage"])
