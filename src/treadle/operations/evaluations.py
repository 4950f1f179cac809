"""Finished evaluations: recording one, and looking at them."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.evaluations import Evaluation, Lane, TargetComparison, TargetSummary
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import Cursor, Limit, Page, moment

FOR_A_PERSON = ("approval", "answer", "client_tool")
"""What a run waits for that no evaluation provides."""


class EvaluationView(Struct, frozen=True):
    """An evaluation without its results."""

    evaluation_id: str
    name: str
    lane: Lane
    started_at: datetime
    ended_at: datetime
    targets: tuple[TargetSummary, ...]
    comparisons: tuple[TargetComparison, ...] = ()


class ListEvaluations(Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Cursor | None = None
    limit: Limit = 50
    name: Annotated[str, Meta(max_length=200, description="Only those of this name.")] | None = None


class OneEvaluation(Struct, frozen=True, forbid_unknown_fields=True):
    evaluation_id: str
    """Its ID, or its name: then the latest one of this name."""


class RecordEvaluation(Struct, frozen=True, forbid_unknown_fields=True):
    evaluation: Evaluation


class WaitForEnd(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId


LIST = Operation(
    "evaluations.list",
    "GET",
    "/v1/evaluations",
    scope="read",
    request=ListEvaluations,
    response=Page[EvaluationView],
)
SHOW = Operation(
    "evaluations.show",
    "GET",
    "/v1/evaluations/{evaluation_id}",
    scope="read",
    request=OneEvaluation,
    response=Evaluation,
    errors=(404,),
)
RECORD = Operation(
    "local.record_evaluation",
    "PUT",
    "/v1/local/evaluations",
    scope="admin",
    request=RecordEvaluation,
    response=type(None),
    public=False,
    whole_body="evaluation",
)


WAIT = Operation(
    "local.wait_for_end",
    "GET",
    "/v1/local/runs/{run_id}/end",
    scope="admin",
    request=WaitForEnd,
    response=type(None),
    public=False,
)


@LIST.handler
async def list_evaluations(context: Context, request: ListEvaluations) -> Page[EvaluationView]:
    """List evaluations, the newest first."""
    refuse_limited(context)
    before = None if request.cursor is None else _read_cursor(request.cursor)
    found = await context.evaluations().recent(before, request.limit + 1, request.name)
    views = tuple(map(_view, found[: request.limit]))
    return Page(views, repr(found[request.limit - 1].ended_at) if len(found) > request.limit else None)


@SHOW.handler
async def show_evaluation(context: Context, request: OneEvaluation) -> Evaluation:
    """Get an evaluation with all its results, by its ID or by its name."""
    refuse_limited(context)
    store = context.evaluations()
    found = await store.find(request.evaluation_id) or await store.latest(request.evaluation_id)
    if found is None:
        raise Refusal(404, "NotFound", f"There is no evaluation `{request.evaluation_id}`.")
    return found


@RECORD.handler
async def record_evaluation(context: Context, request: RecordEvaluation) -> None:
    """Record a finished evaluation."""
    await context.evaluations().put(request.evaluation)


@WAIT.handler
async def wait_for_end(context: Context, request: WaitForEnd) -> None:
    """Wait until a run has ended, or waits for a person."""
    service, run_id = context.service, request.run_id

    async def check() -> bool | None:
        record = await service.run(run_id)
        return True if record.outcome is not None or record.waiting_for in FOR_A_PERSON else None

    while not isinstance(found := await service.wait_for_pause(run_id, check), bool):
        if isinstance(found[1], RunEnd) or await check():
            return


def refuse_limited(context: Context) -> None:
    """Raise Refusal for a caller that sees only some agents or some runs: results quote all of them."""
    if not context.principal.sees_all:
        raise Refusal(403, "Forbidden", "Evaluations are for tokens that see all runs. Use another token.")


def _read_cursor(cursor: str) -> float:
    try:
        return float(cursor)
    except ValueError:
        raise Refusal(400, "BadRequest", "cursor: it is not that of a page of evaluations") from None


def _view(evaluation: Evaluation) -> EvaluationView:
    return EvaluationView(
        evaluation_id=evaluation.evaluation_id,
        name=evaluation.name,
        lane=evaluation.lane,
        started_at=moment(evaluation.started_at),
        ended_at=moment(evaluation.ended_at),
        targets=evaluation.targets,
        comparisons=evaluation.comparisons,
    )
