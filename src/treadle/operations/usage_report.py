"""Usage: what agents, tokens and models have used, and what remains of their quotas."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.domain.errors import ConfigError
from treadle.domain.ids import Instant
from treadle.domain.quotas import Quotas
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.percentiles import Percentiles, find_percentiles
from treadle.operations.runs import read_wanted_labels
from treadle.operations.schemas import Page, WantedTags, WantedUser
from treadle.operations.usage import (
    UsageLine,
    UsageQuery,
    compute_usage,
    find_day,
    find_usage,
    parse_day,
    sum_usage,
)
from treadle.ports.accounts import UsageKey, Used
from treadle.ports.journal import RunFilter, RunRecord

SAMPLE = 2_000
"""The latest runs of the period from which percentiles are computed."""
DAY_SECONDS = 86_400.0
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


class QuotaView(Struct, frozen=True):
    """A quota of an agent or an access token, and what remains of it."""

    of: Literal["agent", "token"]
    name: str
    """The name of the agent, or the id of the token."""
    label: str
    """The name of the agent or the token."""
    kind: Literal["tokens", "credits"]
    """tokens: of models, in the last sixty minutes. credits: in total."""
    ceiling: float
    used: float
    reserved: float
    """The most that model calls in progress can use."""
    remaining: float
    """What a further call can use."""


class ShowSpeed(Struct, frozen=True, forbid_unknown_fields=True):
    by: Literal["agent", "model"] = "agent"
    agent: str | None = None
    since: Day | None = None
    until: Day | None = None
    tag: WantedTags = ()
    user: WantedUser | None = None


class SpeedLine(Struct, frozen=True):
    """How long the runs of an agent or a model took, and how many failed."""

    key: str
    """The agent, or the model as `provider/model`; empty: no model was resolved."""
    runs: int
    """Those that have ended."""
    failed: int
    """Of a model: because it could not be called."""
    duration_ms: Percentiles | None
    """From the start to the end, waits included. Null if none has ended."""
    call_ms: Percentiles | None
    """A model call: the mean of each run. Null if no model was called."""
    model_ms: int
    """Time that the runs spent in the model."""
    tool_ms: int
    """Time that the runs spent in tools."""


class UsageSpeed(Struct, frozen=True):
    items: tuple[SpeedLine, ...]
    is_partial: bool
    """There are more runs: the figures are of the latest 2,000."""


SHOW = Operation("usage.show", "GET", "/v1/usage", scope="read", request=ShowUsage, response=Page[UsageLine])
SERIES = Operation(
    "usage.series", "GET", "/v1/usage/series", scope="read", request=ShowSeries, response=Page[UsagePoint]
)

SPEED = Operation("usage.speed", "GET", "/v1/usage/speed", scope="read", request=ShowSpeed, response=UsageSpeed)
QUOTAS = Operation(
    "usage.quotas", "GET", "/v1/usage/quotas", scope="read", request=NoParameters, response=Page[QuotaView]
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


@SPEED.handler
async def show_speed(context: Context, request: ShowSpeed) -> UsageSpeed:
    """Get how long runs took and how many failed, by agent or model.

    Percentiles are computed from the latest 2,000 runs of the period."""
    wanted = RunFilter(
        agents=context.visible_agents(request.agent),
        owners=context.visible_owners(request.user),
        since=_parse_start(request.since),
        until=None if request.until is None else _parse_start(request.until) + DAY_SECONDS,
        labels=read_wanted_labels(request.tag, ()),
    )
    records = await context.service.runs(wanted, SAMPLE)
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.outcome is not None:
            groups.setdefault(record.agent if request.by == "agent" else record.facts.model, []).append(record)
    lines = [_measure_speed(key, groups[key], request.by) for key in sorted(groups)]
    return UsageSpeed(tuple(lines), len(records) == SAMPLE)


def _measure_speed(key: str, runs: Sequence[RunRecord], by: Literal["agent", "model"]) -> SpeedLine:
    failed = [run for run in runs if (run.status == "failed" if by == "agent" else run.outcome == "model_error")]
    calls = [run.facts.model_ms // run.facts.model_calls for run in runs if run.facts.model_calls]
    return SpeedLine(
        key=key,
        runs=len(runs),
        failed=len(failed),
        duration_ms=find_percentiles([run.duration_ms for run in runs if run.duration_ms is not None]),
        call_ms=find_percentiles(calls),
        model_ms=sum(run.facts.model_ms for run in runs),
        tool_ms=sum(run.facts.tool_ms for run in runs),
    )


def _parse_start(day: str | None) -> Instant:
    """Return the beginning of a day in UTC; that of the first one without a day. Raise UsageError if it is
    invalid."""
    return (parse_day(day, "since") or 0) * DAY_SECONDS


@QUOTAS.handler
async def list_quotas(context: Context, request: NoParameters) -> Page[QuotaView]:
    """List the quotas of agents and access tokens, and what remains of each.

    Only an administrator sees the quotas of all tokens; others see that of their own. A token that is limited to
    its own user does not see what all users of an agent used together."""
    principal = context.principal
    found: list[QuotaView] = []
    for name in context.agents.names():
        if principal.sees(name) and principal.only_owner is None:
            with suppress(ConfigError):
                found += await _describe_quotas(context, "agent", name, context.agents.find(name).quotas)
    for token in await context.access.list():
        may_see = principal.may("admin") or token.token_id == principal.token_id
        if may_see and token.revoked_at is None and token.quotas is not None:
            found += await _describe_quotas(context, "token", token.token_id, token.quotas, token.name)
    return Page(tuple(found))


async def _describe_quotas(
    context: Context, of: Literal["agent", "token"], name: str, quotas: Quotas, label: str = ""
) -> list[QuotaView]:
    tokens, credits = quotas.max_llm_tokens_per_hour, quotas.credits
    if tokens is None and credits is None:
        return []
    balance = await context.service.accounts.balance(f"{of}/{name}")
    amounts: tuple[tuple[Literal["tokens", "credits"], float | None, float, float], ...] = (
        ("tokens", tokens, balance.tokens, balance.reserved_tokens),
        ("credits", credits, balance.credits, balance.reserved_credits),
    )
    return [
        QuotaView(
            of=of,
            name=name,
            label=label or name,
            kind=kind,
            ceiling=ceiling,
            used=used,
            reserved=reserved,
            remaining=max(0.0, ceiling - used - reserved),
        )
        for kind, ceiling, used, reserved in amounts
        if ceiling is not None
    ]


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
