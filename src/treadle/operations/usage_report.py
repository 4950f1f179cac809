"""Usage: what agents, tokens and models have used."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Page
from treadle.operations.usage import UsageLine, UsageQuery
from treadle.ports.accounts import UsageKey

Day = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$", description="A day in UTC: 2026-03-01.")]


class ShowUsage(Struct, frozen=True, forbid_unknown_fields=True):
    by: UsageKey = "agent"
    agent: str | None = None
    since: Day | None = None
    until: Day | None = None


SHOW = Operation("usage.show", "GET", "/v1/usage", scope="read", request=ShowUsage, response=Page[UsageLine])


@SHOW.handler
async def show_usage(context: Context, request: ShowUsage) -> Page[UsageLine]:
    """Get what was used, by agent, token, model or day.

    A token that is limited to its own user sees what it used itself."""
    principal = context.principal
    token = None if principal.only_owner is None else principal.token_id
    query = UsageQuery(request.by, context.visible_agents(request.agent), request.since, request.until, token)
    return Page(tuple(await context.service.usage(query)))
