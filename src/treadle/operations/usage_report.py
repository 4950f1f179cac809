"""Usage: what agents, tokens and models have used."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.runs import read_wanted_labels
from treadle.operations.schemas import Page, WantedTags, WantedUser
from treadle.operations.usage import UsageLine, UsageQuery, compute_usage, find_day, find_usage, sum_usage
from treadle.ports.accounts import UsageKey, Used

Day = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        description="A day in UTC: 2026-03-01.",
        extra_json_schema={"format": "date"},
    ),
]


class ShowUsage(Struct, frozen=True, forbid_unknown_fields=True):
    by: UsageKey = "agent"
    agent: str | None = None
    since: Day | None = None
    until: Day | None = None
    tag: WantedTags = ()
    user: WantedUser | None = None


Bucket = Literal["day", "week", "month"]
SeriesKey = Literal["all", "agent", "token", "model", "user", "tag"]


class UsagePoint(Struct, frozen=True):
    """What one group used in one day, week or month."""

    start: date
    """The first day, in UTC. Weeks begin on Monday."""
    key: str
    """The agent, token, model, user or tag; empty for all."""
    used: UsageLine


class ShowSeries(Struct, frozen=True, forbid_unknown_fields=True):
    bucket: Bucket = "day"
    by: SeriesKey = "all"
    agent: str | None = None
    since: Day | None = None
    until: Day | None = None
    tag: WantedTags = ()
    user: WantedUser | None = None


SHOW = Operation("usage.show", "GET", "/v1/usage", scope="read", request=ShowUsage, response=Page[UsageLine])
SERIES = Operation(
    "usage.series", "GET", "/v1/usage/series", scope="read", request=ShowSeries, response=Page[UsagePoint]
)


@SHOW.handler
async def show_usage(context: Context, request: ShowUsage) -> Page[UsageLine]:
    """Get what was used, by agent, token, model, user, tag or day.

    A run with two tags counts for both. A token that is limited to its own user sees what it used itself; a user
    whom a client serves sees what was used for them."""
    return Page(tuple(await compute_usage(context.service.accounts, _make_query(context, request, request.by))))


@SERIES.handler
async def show_series(context: Context, request: ShowSeries) -> Page[UsagePoint]:
    """Get what was used over time, per day, week or month.

    Optionally one line per agent, token, model, user or tag. Days on which nothing was used are left out."""
    query = _make_query(context, request, "agent" if request.by == "all" else request.by)
    records = await find_usage(context.service.accounts, query)
    return Page(tuple(_collect_points(records, request.bucket, request.by)))


def _make_query(context: Context, request: ShowUsage | ShowSeries, by: UsageKey) -> UsageQuery:
    principal = context.principal
    names_user = request.user is not None or principal.served is not None
    return UsageQuery(
        by=by,
        agents=context.visible_agents(request.agent),
        since=request.since,
        until=request.until,
        token=None if principal.only_owner is None else principal.token_id,
        owners=context.visible_owners(request.user) if names_user else None,
        tags=read_wanted_labels(request.tag, ()).tags,
    )


def _collect_points(records: Sequence[Used], bucket: Bucket, by: SeriesKey) -> list[UsagePoint]:
    buckets: dict[date, list[Used]] = {}
    for used in records:
        buckets.setdefault(_first_day(find_day(used), bucket), []).append(used)
    points: list[UsagePoint] = []
    for start in sorted(buckets):
        if by == "all":
            [line] = sum_usage([replace(used, agent="") for used in buckets[start]], "agent")
            points.append(UsagePoint(start, "", line))
        else:
            points += [UsagePoint(start, line.key, line) for line in sum_usage(buckets[start], by)]
    return points


def _first_day(day: date, bucket: Bucket) -> date:
    match bucket:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
