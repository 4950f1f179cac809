"""Feedback: a score and a note that a person gives to a run. Each person has one opinion of a run."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.refusal import Refusal
from treadle.operations.runs import OneRun
from treadle.operations.schemas import Cursor, Limit, Page, moment
from treadle.ports.evaluations import Feedback

Score = Annotated[float, Meta(ge=0, le=1, description="From 0 (bad) to 1 (good).")]


class FeedbackView(Struct, frozen=True):
    """What a person thinks of a run."""

    run_id: RunId
    author: str
    score: float
    note: str
    at: datetime


class GiveFeedback(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    score: Score
    note: Annotated[str, Meta(max_length=4000)] = ""
    by: Annotated[str, Meta(max_length=100, description="Who thinks so, if not the caller.")] = ""


class ListFeedback(Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Cursor | None = None
    limit: Limit = 50
    max_score: Annotated[float, Meta(ge=0, le=1, description="Only feedback with at most this score.")] | None = (
        None
    )
    min_score: Annotated[float, Meta(ge=0, le=1, description="Only feedback with at least this score.")] | None = (
        None
    )


GIVE = Operation(
    "feedback.give",
    "PUT",
    "/v1/runs/{run_id}/feedback",
    scope="run",
    request=GiveFeedback,
    response=FeedbackView,
    errors=(404, 413),
)
OF_RUN = Operation(
    "feedback.of_run",
    "GET",
    "/v1/runs/{run_id}/feedback",
    scope="read",
    request=OneRun,
    response=Page[FeedbackView],
    errors=(404,),
)
LIST = Operation(
    "feedback.list", "GET", "/v1/feedback", scope="read", request=ListFeedback, response=Page[FeedbackView]
)


@GIVE.handler
async def give_feedback(context: Context, request: GiveFeedback) -> FeedbackView:
    """Score a run, with a note.

    A later score of the same person replaces the earlier one."""
    record = await context.addressed_run(request.run_id)
    note = context.vault.redactor.redact(request.note).text
    author = context.resolve_signer(request.by)
    at = context.now()
    run_id = record.origin.run_id
    given = Feedback(
        feedback_id=f"fbk_{run_id}_{author}",
        run_id=run_id,
        author=author,
        score=request.score,
        note=note,
        at=at,
    )
    await context.evaluations().put_feedback(given)
    return _view(given)


@OF_RUN.handler
async def list_feedback_of_run(context: Context, request: OneRun) -> Page[FeedbackView]:
    """List what people think of a run."""
    record = await context.readable_run(request.run_id)
    found = await context.evaluations().feedback_of_run(record.origin.run_id)
    return Page(tuple(map(_view, found)))


@LIST.handler
async def list_feedback(context: Context, request: ListFeedback) -> Page[FeedbackView]:
    """List feedback, the newest first."""
    before = None if request.cursor is None else _read_cursor(request.cursor)
    found = await context.evaluations().feedback(before, request.max_score, request.min_score, request.limit + 1)
    shown = [
        _view(each)
        for each in found[: request.limit]
        if context.principal.sees_all or context.sees(await context.service.run(each.run_id))
    ]
    return Page(tuple(shown), repr(found[request.limit - 1].at) if len(found) > request.limit else None)


def _read_cursor(cursor: str) -> float:
    try:
        return float(cursor)
    except ValueError:
        raise Refusal(400, "BadRequest", "cursor: it is not that of a page of feedback") from None


def _view(feedback: Feedback) -> FeedbackView:
    return FeedbackView(
        run_id=feedback.run_id,
        author=feedback.author,
        score=feedback.score,
        note=feedback.note,
        at=moment(feedback.at),
    )
