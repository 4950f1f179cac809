"""What a run and the runs below it wait for until a reviewer, a user, an operator or the client acts."""

from msgspec import Struct

from treadle.domain.events import (
    ApprovalDecided,
    CancelRequested,
    ClarifyAnswered,
    ClarifyRequested,
    MessageSteered,
    ResumeRequested,
    RunInterrupted,
    RunWaiting,
    WaitReason,
)
from treadle.domain.ids import Instant, RunId
from treadle.operations.context import Context
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.journal import RunFilter, RunRecord

CONTINUES = (
    ApprovalDecided,
    CancelRequested,
    ClarifyAnswered,
    MessageSteered,
    ResumeRequested,
    RunInterrupted,
)
"""What a run that waits is continued by. Results of a client are counted one by one."""
RECENT_EVENTS = 50
MAX_CHILDREN = 100


class ApprovalPause(Struct, frozen=True):
    """A call that waits for a decision."""

    record: ApprovalRecord


class QuestionPause(Struct, frozen=True):
    """A question of an agent."""

    run_id: RunId
    call_id: str
    question: str
    options: tuple[str, ...]
    during: str | None
    """The call in progress that asks it."""
    expires_at: Instant | None


class ResumePause(Struct, frozen=True):
    """A run that continues when it is resumed."""

    run_id: RunId
    reason: WaitReason
    detail: str


class ClientPause(Struct, frozen=True):
    """A run that waits for results of tools that its client runs."""

    run_id: RunId
    call_ids: tuple[str, ...]


Pause = ApprovalPause | QuestionPause | ResumePause | ClientPause


async def find_pauses(context: Context, record: RunRecord) -> list[Pause]:
    """Return what a run and the runs below it wait for, if a person or the client has to act."""
    service, run_id = context.service, record.origin.run_id
    if record.outcome is not None:
        return []
    if calls := await service.client_calls.list_open(record):  # the run may still be in memory
        return [ClientPause(run_id, tuple([each.call_id for each in calls]))]
    if record.status != "waiting":  # a call in progress can ask something
        return [_make_question(run_id, each) for each in await service.questions(run_id) if each.during is not None]
    waiting = await _find_waiting(context, record)
    match None if waiting is None else waiting.reason:
        case "child":
            below = await service.runs(RunFilter(parent_run_id=run_id, unfinished=True), limit=MAX_CHILDREN)
            return [found for child in reversed(below) for found in await find_pauses(context, child)]
        case "approval":
            return [ApprovalPause(each) for each in await service.approvals(run_id)]
        case "answer":
            return [_make_question(run_id, each) for each in await service.questions(run_id)]
        case "interrupted" | "unavailable" | "quota" | "budget" as reason if waiting and waiting.wake_at is None:
            return [ResumePause(run_id, reason, waiting.detail)]
        case _:
            return []


async def _find_waiting(context: Context, record: RunRecord) -> RunWaiting | None:
    """Return what a run waits for, or None if it has come already and the run has only not been claimed yet."""
    after = max(0, record.sequence - RECENT_EVENTS)
    for event in reversed(await context.service.page(record.origin.run_id, after, RECENT_EVENTS)):
        if isinstance(event.data, RunWaiting):
            return event.data
        if isinstance(event.data, CONTINUES):
            return None
    return None


def _make_question(run_id: RunId, asked: ClarifyRequested) -> QuestionPause:
    return QuestionPause(
        run_id=run_id,
        call_id=asked.call_id,
        question=asked.question,
        options=tuple(asked.options),
        during=asked.during,
        expires_at=asked.expires_at,
    )
