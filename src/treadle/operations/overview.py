"""The overview of all runs, with which a team begins: what is in progress, what waits, what failed, what it cost,
and which agents and models are slow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.events import WaitReason
from treadle.domain.runs import Status
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.percentiles import Percentiles, find_percentiles
from treadle.operations.runs import RunView, run_view
from treadle.operations.schemas import moment
from treadle.ports.journal import RunFilter, RunOrder, RunRecord, RunSums

TOP = 5
"""How many of the dearest, slowest and failed runs are shown."""
SAMPLE = 2_000
"""The latest runs of the period from which percentiles and error rates are computed."""
MAX_WAITING = 1_000
DAY = timedelta(days=1)


class AgentFigures(Struct, frozen=True):
    """How the runs of an agent went."""

    agent: str
    runs: int
    failed: int
    cost: float
    duration_ms: Percentiles | None = None
    """Null if none has ended."""


class ModelFigures(Struct, frozen=True):
    """How the runs of a model went."""

    model: str
    """As `provider/model`."""
    runs: int
    failed: int
    """Runs that ended because the model could not be called."""
    cost: float
    call_ms: Percentiles | None = None
    """Time of a model call: the mean of each run. Null if none has ended."""
    problem: str = ""
    """Why the latest of them failed."""


class RunsOverview(Struct, frozen=True):
    """All runs that the caller can see."""

    since: datetime
    today: RunSums
    yesterday: RunSums
    """The same hours of the day before."""
    running: int
    pending: int
    waiting: dict[WaitReason, int]
    """How many runs wait, by what they wait for."""
    agents: tuple[AgentFigures, ...]
    """The agents of the latest runs, the dearest first. So are the models."""
    models: tuple[ModelFigures, ...]
    dearest: tuple[RunView, ...]
    slowest: tuple[RunView, ...]
    failed: tuple[RunView, ...]
    """The latest runs that failed."""
    is_partial: bool = False
    """There are more runs than the figures of agents and models cover: these are of the latest 2,000."""


class ShowOverview(Struct, frozen=True, forbid_unknown_fields=True):
    since: (
        Annotated[
            datetime,
            Meta(tz=True, description="The beginning of the day of the caller. By default, of the day in UTC."),
        ]
        | None
    ) = None


SHOW = Operation("overview.show", "GET", "/v1/overview", scope="read", request=ShowOverview, response=RunsOverview)


@SHOW.handler
async def show_overview(context: Context, request: ShowOverview) -> RunsOverview:
    """Get an overview of all runs.

    What is in progress, waits and failed today, what it cost against yesterday, and the figures of agents and
    models."""
    service, now = context.service, moment(context.now())
    since = request.since or now.replace(hour=0, minute=0, second=0, microsecond=0)
    agents, owners = context.visible_agents(None), context.visible_owners(None)

    def matching(
        status: Status | None = None,
        order: RunOrder = "created",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> RunFilter:
        return RunFilter(
            agents=agents,
            owners=owners,
            status=status,
            order=order,
            since=None if since is None else since.timestamp(),
            until=None if until is None else until.timestamp(),
        )

    waiting = await service.runs(matching("waiting"), MAX_WAITING)
    sample = await service.runs(matching(since=since), SAMPLE)
    today = await service.sum_runs(matching(since=since))
    return RunsOverview(
        since=since,
        today=today,
        yesterday=await service.sum_runs(matching(since=since - DAY, until=now - DAY)),
        running=(await service.sum_runs(matching("running"))).runs,
        pending=(await service.sum_runs(matching("pending"))).runs,
        waiting=dict(Counter(record.waiting_for for record in waiting if record.waiting_for is not None)),
        agents=describe_agents(sample),
        models=describe_models(sample),
        dearest=_view(run for run in await service.runs(matching(order="cost", since=since), TOP) if run.cost),
        slowest=_view(
            run
            for run in await service.runs(matching(order="duration", since=since), TOP)
            if run.duration_ms is not None
        ),
        failed=_view(await service.runs(matching("failed", since=since), TOP)),
        is_partial=today.runs > len(sample),
    )


def describe_agents(records: Sequence[RunRecord]) -> tuple[AgentFigures, ...]:
    """Return the figures of the agents of these runs, the dearest first."""
    found = [
        AgentFigures(
            agent=agent,
            runs=len(runs),
            failed=sum(run.status == "failed" for run in runs),
            cost=sum(run.cost or 0.0 for run in runs),
            duration_ms=find_percentiles([run.duration_ms for run in runs if run.duration_ms is not None]),
        )
        for agent, runs in _group([(run.agent, run) for run in records]).items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.cost, -each.runs, each.agent)))


def describe_models(records: Sequence[RunRecord]) -> tuple[ModelFigures, ...]:
    """Return the figures of the models of these runs, which are the newest first; the dearest model first."""
    found: list[ModelFigures] = []
    for model, runs in _group([(run.facts.model, run) for run in records if run.facts.model]).items():
        failed = [run for run in runs if run.outcome == "model_error"]
        calls = [run.facts.model_ms // run.facts.model_calls for run in runs if run.facts.model_calls]
        figures = ModelFigures(
            model=model,
            runs=len(runs),
            failed=len(failed),
            cost=sum(run.cost or 0.0 for run in runs),
            call_ms=find_percentiles(calls),
            problem=failed[0].facts.reason if failed else "",
        )
        found.append(figures)
    return tuple(sorted(found, key=lambda each: (-each.cost, -each.runs, each.model)))


def _group(pairs: Iterable[tuple[str, RunRecord]]) -> dict[str, list[RunRecord]]:
    groups: dict[str, list[RunRecord]] = {}
    for name, run in pairs:
        groups.setdefault(name, []).append(run)
    return groups


def _view(records: Iterable[RunRecord]) -> tuple[RunView, ...]:
    return tuple(map(run_view, records))
