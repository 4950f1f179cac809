"""Runs: looking at them. `run_start` starts them, and `run_control` steers and ends them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.domain.commands import format_command
from treadle.domain.envelope import Origin, to_json
from treadle.domain.errors import UsageError
from treadle.domain.events import (
    ClientCallRequested,
    ModelResolved,
    RunEnd,
    RunForked,
    RunQueued,
    UserMessage,
    WaitReason,
)
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.labels import Labels, make_labels, parse_metadata
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.run_records import RunSteps, build_run_steps
from treadle.operations.schemas import Cursor, Limit, Page, WantedMetadata, WantedTags, WantedUser, maybe, moment
from treadle.ports.journal import RunFilter, RunOrder, RunRecord, RunSums

LONGEST_WAIT = 600
FIRST_EVENTS = 8
"""The message of a run and its model are among its first events, within this number."""
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the end of the run.")]


class RunMetrics(Metrics, frozen=True):
    """The usage of a run, with the numbers that follow from it."""

    cache_hit_rate: float = 0.0  # pyright: ignore[reportIncompatibleMethodOverride] -- the computed value, sent
    """The share of the input tokens that came from the cache."""
    overhead_ms: int = 0  # pyright: ignore[reportIncompatibleMethodOverride] -- the computed value, sent
    """Time that was spent neither in the model nor in tools."""


class RunResult(Struct, frozen=True):
    """The result of a run."""

    text: str
    reason: str
    next: str
    metrics: RunMetrics
    stopped: tuple[str, ...] = ()
    unverified_claim: str = ""
    score: float | None = None
    """From 0 to 1, if the answer was scored."""
    score_reasons: str = ""
    diagnosis: str = ""
    """Why it failed, if an agent diagnosed it."""
    silent: bool = False
    """The agent chose not to answer: `text` is empty on purpose."""


class RunView(Struct, frozen=True):
    """A run."""

    run_id: RunId
    session_id: SessionId
    agent: str
    agent_id: AgentId
    parent_run_id: RunId | None
    status: Status
    outcome: OutcomeKind | None
    waiting_for: WaitReason | None
    created_at: datetime
    wake_at: datetime | None
    sequence: int
    """Sequence of its latest event."""
    owner: UserId = LOCAL_USER
    """The user of the run."""
    summary: str = ""
    """The beginning of the message that it answers."""
    cost: float | None = None
    """Dollars. While the run is in progress, this, the tokens and the steps are a few seconds old."""
    tokens: int | None = None
    steps: int | None = None
    duration_ms: int | None = None
    """Null until it has ended. So are the next three."""
    tool_calls: int | None = None
    credits: float | None = None
    score: float | None = None
    """From 0 to 1, if the answer was scored."""
    unpriced_calls: int = 0
    """Calls of models without a known price, which `cost` does not include."""
    resolved_model: str = ""
    """The model that was resolved for it, as `provider/model`."""
    reason: str = ""
    """Why it ended, if it did not complete: the beginning."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}

    @property
    def origin(self) -> Origin:
        return Origin(self.run_id, self.session_id, self.agent_id, self.parent_run_id)


class RunDetail(RunView, frozen=True):
    """A run with its result."""

    result: RunResult | None = None
    """Null until it has ended."""
    message: str = ""
    """The message that it answers, or the command that it carries out."""
    version: int | None = None
    """The version of its agent; null if a program defines the agent."""
    provider: str = ""
    model: str = ""
    client_calls: tuple["OpenCall", ...] = ()
    """The calls of the client's tools for which it waits."""
    """The model that was resolved for it, with its provider; empty before that. Steps tell which model answered."""


class OpenCall(Struct, frozen=True):
    """A call of a tool that the client brought and runs. The run waits for its result."""

    call_id: str
    name: str
    arguments: str
    """A JSON object, as the model wrote it."""
    expires_at: datetime | None = None
    """When the run continues without a result."""


class Question(Struct, frozen=True):
    """A question of an agent that has no answer yet."""

    call_id: str
    question: str
    options: tuple[str, ...] = ()


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class ListRuns(Struct, frozen=True, forbid_unknown_fields=True):
    agent: str | None = None
    session_id: SessionId | None = None
    status: Status | None = None
    outcome: OutcomeKind | None = None
    unfinished: bool = False
    cursor: Cursor | None = None
    limit: Limit = 50
    id_prefix: Annotated[str, Meta(max_length=64, description="Only runs whose id begins with this.")] | None = None
    id_suffix: Annotated[str, Meta(max_length=64, description="Only runs whose id ends with this.")] | None = None
    since: Annotated[datetime, Meta(tz=True, description="Only runs created at this time or later.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Only runs created before this time.")] | None = None
    text: Annotated[str, Meta(max_length=200, description="Only runs whose message has this.")] | None = None
    min_cost: Annotated[float, Meta(ge=0, description="Only runs that cost at least this.")] | None = None
    tag: WantedTags = ()
    metadata: WantedMetadata = ()
    user: WantedUser | None = None
    order: Annotated[RunOrder, Meta(description="The largest first; `created` is the latest first.")] = "created"
    ascending: Annotated[bool, Meta(description="The smallest first; not for `created`.")] = False


class SumRuns(Struct, frozen=True, forbid_unknown_fields=True):
    agent: str | None = None
    session_id: SessionId | None = None
    status: Status | None = None
    outcome: OutcomeKind | None = None
    unfinished: bool = False
    since: Annotated[datetime, Meta(tz=True, description="Only runs created at this time or later.")] | None = None
    until: Annotated[datetime, Meta(tz=True, description="Only runs created before this time.")] | None = None
    text: Annotated[str, Meta(max_length=200, description="Only runs whose message has this.")] | None = None
    min_cost: Annotated[float, Meta(ge=0, description="Only runs that cost at least this.")] | None = None
    tag: WantedTags = ()
    metadata: WantedMetadata = ()
    user: WantedUser | None = None


class ListChildren(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    unfinished: bool = False
    cursor: Cursor | None = None
    limit: Limit = 50


class ShowRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    wait: Wait | None = None


class OneRun(Struct, frozen=True, forbid_unknown_fields=True):
    """The request of an operation that takes a run and nothing else."""

    run_id: RunId


class ReadJournal(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    after: Annotated[int, Meta(ge=0, description="Only events after this sequence.")] = 0
    limit: Limit = 100


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

LIST = Operation("runs.list", "GET", "/v1/runs", scope="read", request=ListRuns, response=Page[RunView])
SUM = Operation("runs.sum", "GET", "/v1/run-sums", scope="read", request=SumRuns, response=RunSums)
CHILDREN = Operation(
    "runs.children",
    "GET",
    "/v1/runs/{run_id}/children",
    scope="read",
    request=ListChildren,
    response=Page[RunView],
    errors=(404,),
)
SHOW = Operation(
    "runs.show",
    "GET",
    "/v1/runs/{run_id}",
    scope="read",
    request=ShowRun,
    response=RunDetail,
    errors=(404,),
)
JOURNAL = Operation(
    "runs.journal",
    "GET",
    "/v1/runs/{run_id}/journal",
    scope="read",
    request=ReadJournal,
    response=Page[dict[str, Any]],
    errors=(404,),
)
STEPS = Operation(
    "runs.steps", "GET", "/v1/runs/{run_id}/steps", scope="read", request=OneRun, response=RunSteps, errors=(404,)
)
QUESTIONS = Operation(
    "runs.questions",
    "GET",
    "/v1/runs/{run_id}/questions",
    scope="read",
    request=OneRun,
    response=Page[Question],
    errors=(404,),
)


@LIST.handler
async def list_runs(context: Context, request: ListRuns) -> Page[RunView]:
    """List runs, the newest first or in another order."""
    wanted = replace(
        _make_filter(context, request),
        before=None if request.cursor is None else RunId(request.cursor),
        id_prefix=request.id_prefix,
        id_suffix=request.id_suffix,
        order=request.order,
        ascending=request.ascending and request.order != "created",
    )
    return await _page(context, wanted, request.limit)


@SUM.handler
async def sum_runs(context: Context, request: SumRuns) -> RunSums:
    """Count runs, and sum up what they used.

    Child runs are counted too."""
    return await context.service.sum_runs(_make_filter(context, request))


def _make_filter(context: Context, request: ListRuns | SumRuns) -> RunFilter:
    return RunFilter(
        agents=context.visible_agents(request.agent),
        session_id=request.session_id,
        status=request.status,
        outcome=request.outcome,
        unfinished=request.unfinished,
        owners=context.visible_owners(request.user),
        since=None if request.since is None else request.since.timestamp(),
        until=None if request.until is None else request.until.timestamp(),
        text=request.text or None,
        min_cost=request.min_cost,
        labels=read_wanted_labels(request.tag, request.metadata),
    )


@CHILDREN.handler
async def list_children(context: Context, request: ListChildren) -> Page[RunView]:
    """List the child runs of a run.

    The runs that it started itself, the newest first. Their children are listed with them."""
    parent = (await context.visible_run(request.run_id)).origin.run_id
    wanted = RunFilter(
        context.principal.agents,
        None,
        parent,
        before=None if request.cursor is None else RunId(request.cursor),
        unfinished=request.unfinished,
        owners=context.visible_owners(None),
    )
    return await _page(context, wanted, request.limit)


async def _page(context: Context, wanted: RunFilter, limit: int) -> Page[RunView]:
    found = await context.service.runs(wanted, limit + 1)
    views = tuple(run_view(record) for record in found[:limit])
    return Page(views, views[-1].run_id if len(found) > limit else None)


@SHOW.handler
async def show_run(context: Context, request: ShowRun) -> RunDetail:
    """Get a run and its result.

    With `wait`, respond when the run has ended, or when that time is over."""
    record = await context.visible_run(request.run_id)
    if request.wait and record.outcome is None:
        await wait_for_end(context, record.origin.run_id, request.wait)
        record = await context.service.run(record.origin.run_id)
    return await run_detail(context, record)


@JOURNAL.handler
async def read_journal(context: Context, request: ReadJournal) -> Page[dict[str, Any]]:
    """List the durable events of a run, a page at a time."""
    record = await context.visible_run(request.run_id)
    found = await context.service.page(record.origin.run_id, request.after, request.limit)
    items = tuple(msgspec.json.decode(to_json(event)) for event in found)
    last = found[-1].sequence if found else request.after
    return Page(items, str(last) if last < record.sequence else None)


@STEPS.handler
async def show_steps(context: Context, request: OneRun) -> RunSteps:
    """Get the steps of a run.

    The model, tokens, time, attempts and tool calls of each step, and their sums."""
    record = await context.visible_run(request.run_id)
    events = [event async for event in context.service.read_stored(record.origin.run_id)]
    return build_run_steps(events, None if record.outcome is not None else context.now())


@QUESTIONS.handler
async def list_questions(context: Context, request: OneRun) -> Page[Question]:
    """List the open questions of a run."""
    record = await context.visible_run(request.run_id)
    found = await context.service.questions(record.origin.run_id)
    return Page(tuple(Question(each.call_id, each.question, tuple(each.options)) for each in found))


def read_wanted_labels(tags: Sequence[str], metadata: Sequence[str]) -> Labels:
    """Return the labels that a filter names. Raise UsageError if no run can have them."""
    try:
        return make_labels(tags, parse_metadata(metadata))
    except ValueError as error:
        raise UsageError(f"The filter cannot match a run: {error}. Correct it.") from None


# ── Views ──────────────────────────────────────────────────────────────────────────────────────────


def run_view(record: RunRecord) -> RunView:
    return RunView(**_fields(record))


async def run_detail(context: Context, record: RunRecord) -> RunDetail:
    run_id, service = record.origin.run_id, context.service
    end = None if record.outcome is None else (await service.wait(run_id))[1]
    calls = await service.client_calls.list_open(record)
    fields = _fields(record)
    if calls:  # it may still be in memory
        fields |= {"status": "waiting", "waiting_for": "client_tool"}
    return RunDetail(
        **fields,
        result=None if end is None else make_run_result(end),
        client_calls=tuple(map(make_client_call, calls)),
        **await read_opening(context, run_id),
    )


async def wait_for_end(context: Context, run_id: RunId, seconds: float) -> None:
    """Wait for the end of a run, or until it waits for results of its client: at most so long, and only while
    the caller waits for the response."""
    ending = asyncio.ensure_future(_wait_for_end_or_client(context, run_id))
    tasks = [ending] if context.leave is None else [ending, asyncio.ensure_future(context.leave())]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
    finally:
        for task in tasks:
            task.cancel()


async def _wait_for_end_or_client(context: Context, run_id: RunId) -> None:
    service = context.service

    async def check() -> bool | None:
        record = await service.run(run_id)
        has_paused = record.outcome is not None or await service.client_calls.list_open(record)
        return True if has_paused else None

    while True:
        found = await service.wait_for_pause(run_id, check)
        if isinstance(found, bool) or isinstance(found[1], RunEnd) or await check():
            return


def make_client_call(asked: ClientCallRequested) -> OpenCall:
    expires_at = None if asked.expires_at is None else moment(asked.expires_at)
    return OpenCall(asked.call_id, asked.name, asked.arguments, expires_at)


def make_run_result(end: RunEnd) -> RunResult:
    return RunResult(
        text=end.text,
        reason=end.reason,
        next=end.next,
        metrics=RunMetrics(
            **msgspec.structs.asdict(end.metrics),
            cache_hit_rate=end.metrics.cache_hit_rate,
            overhead_ms=end.metrics.overhead_ms,
        ),
        stopped=end.stopped,
        unverified_claim=end.unverified_claim,
        score=end.score,
        score_reasons=end.score_reasons,
        diagnosis=end.diagnosis,
        silent=end.outcome == "silent",  # also in journals from before `silent` was recorded
    )


async def read_opening(context: Context, run_id: RunId) -> dict[str, Any]:
    """Return what the first events of a run tell: the message that it answers or the command that it carries out,
    and the model that was resolved for it."""
    found: dict[str, Any] = {}
    has_message = False
    for event in await context.service.page(run_id, 0, FIRST_EVENTS):
        if isinstance(event.data, RunQueued) and event.data.version is not None:
            found["version"] = event.data.version
        match event.data:
            case RunQueued(command=command) if command is not None:
                found["message"], has_message = format_command(command), True
            case RunForked(asked=asked) if not has_message:
                found["message"] = asked  # unless a message replaces it
            case UserMessage(message=said) if not has_message:
                found["message"], has_message = said.text, True
            case ModelResolved(provider=provider, model=model) if "model" not in found:
                found |= {"provider": provider, "model": model}
            case _:
                pass
    return found


def _fields(record: RunRecord) -> dict[str, Any]:
    origin = record.origin
    return {
        "run_id": origin.run_id,
        "session_id": origin.session_id,
        "agent": record.agent,
        "agent_id": origin.agent_id,
        "parent_run_id": origin.parent_run_id,
        "status": record.status,
        "outcome": record.outcome,
        "waiting_for": record.waiting_for,
        "created_at": moment(record.created_at),
        "wake_at": maybe(record.wake_at),
        "sequence": record.sequence,
        "owner": record.owner,
        "summary": record.message,
        "cost": record.cost,
        "tokens": record.tokens,
        "steps": record.steps,
        "duration_ms": record.duration_ms,
        "tool_calls": record.facts.tool_calls,
        "credits": record.facts.credits,
        "score": record.facts.score,
        "unpriced_calls": record.facts.unpriced_calls,
        "resolved_model": record.facts.model,
        "reason": record.facts.reason,
        "tags": record.labels.tags,
        "metadata": record.labels.metadata,
    }
