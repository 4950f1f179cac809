"""Interrupts: what a run waits for until a person acts, and the answers.

AG-UI ends a run that waits. The next request carries an answer to every interrupt, and continues the same run of
Treadle."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.errors import InvalidState
from treadle.domain.ids import Instant
from treadle.operations import approvals, run_control
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller
from treadle.operations.pauses import ApprovalPause, ClientPause, Pause, QuestionPause, ResumePause, find_pauses
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.ag_ui.requests import ResumeEntry

ABANDONED = "The person did not decide."
NO_ANSWER = "The person did not answer."
APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "All arguments, in place of those of the call."},
        "note": {"type": "string", "description": "What the agent is told."},
    },
    "required": ["approved"],
}
_REASONS: Mapping[str, str] = {
    "interrupted": "The run was interrupted.",
    "unavailable": "Something that the run needs is missing.",
}
OpenInterrupt = ApprovalPause | QuestionPause | ResumePause


class ProtocolError(Exception):
    """A request that breaks a rule of AG-UI. The client gets it as a RUN_ERROR."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _ResumeDecision(Struct, frozen=True, rename="camel"):
    approved: bool
    edited_args: dict[str, Any] | None = None
    note: str = ""


class _ResumeAnswer(Struct, frozen=True):
    answer: str


def make_interrupt_id(pause: OpenInterrupt) -> str:
    match pause:
        case ApprovalPause(record):
            return record.approval_id
        case QuestionPause(run_id, call_id):
            return f"{run_id}:question:{call_id}"
        case ResumePause(run_id, reason):
            return f"{run_id}:{reason}"


def list_interrupts(pauses: Sequence[Pause]) -> list[OpenInterrupt]:
    """Return those pauses that are interrupts. Results of the client's tools come as messages."""
    return [pause for pause in pauses if not isinstance(pause, ClientPause)]


async def find_interrupts(context: Context, record: RunRecord) -> list[OpenInterrupt]:
    """Return what a run and the runs below it wait for and a person can answer."""
    return list_interrupts(await find_pauses(context, record))


def describe_pause(pause: ResumePause) -> str:
    """Return what a run that must be resumed waits for, for people."""
    return pause.detail or _REASONS.get(pause.reason, f"The run waits: {pause.reason}.")


def format_time(at: Instant | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat()


# ── Answers ──


def check_coverage(open_: Sequence[OpenInterrupt], resume: Sequence[ResumeEntry]) -> None:
    """Raise ProtocolError unless each open interrupt has exactly one answer, and nothing else has one."""
    ids, answered = list(map(make_interrupt_id, open_)), [each.interrupt_id for each in resume]
    if missing := [each for each in ids if each not in answered]:
        raise ProtocolError(
            "interrupts_open",
            f"The run waits for an answer to {', '.join(missing)}. Send `resume` with an answer to each.",
        )
    if unknown := [each for each in answered if each not in ids]:
        raise ProtocolError(
            "unknown_interrupt",
            f"The thread has no open interrupt {', '.join(unknown)[:500]}: it was answered, or it has expired. "
            "Leave it out.",
        )
    if len(set(answered)) < len(answered):
        raise ProtocolError("unknown_interrupt", "`resume` answers an interrupt twice. Answer each once.")


async def answer_interrupts(
    context: Context, open_: Sequence[OpenInterrupt], resume: Sequence[ResumeEntry]
) -> None:
    """Deliver the answers. Raise ProtocolError, before anything is delivered, for an answer that does not fit."""
    entries = {each.interrupt_id: each for each in resume}
    if open_ and not context.principal.may("approve"):
        raise ProtocolError("forbidden", "The token lacks the scope `approve`. Answer with another token.")
    calls = [_make_call(each, entries[make_interrupt_id(each)]) for each in open_]
    caller = LocalCaller(context)
    for operation, request in calls:
        with suppress(InvalidState):  # it was answered elsewhere meanwhile
            await caller.call(operation, request)


def _make_call(pause: OpenInterrupt, entry: ResumeEntry) -> tuple[Any, Any]:
    """Return the operation that gives an answer, with its request."""
    is_cancelled = entry.status == "cancelled"
    match pause:
        case ApprovalPause(record):
            decision = _ResumeDecision(False, None, ABANDONED) if is_cancelled else _read_decision(entry)
            request = approvals.DecideApproval(
                approval_id=record.approval_id,
                decision="approve" if decision.approved else "deny",
                arguments=decision.edited_args if decision.approved else None,
                note=decision.note,
            )
            return approvals.DECIDE, request
        case QuestionPause(run_id, call_id):
            text = NO_ANSWER if is_cancelled else _read_answer(entry)
            return run_control.ANSWER, run_control.AnswerQuestion(run_id, call_id, text)
        case ResumePause(run_id):
            if is_cancelled:
                return run_control.CANCEL, run_control.StopRun(run_id, ABANDONED)
            return run_control.RESUME, run_control.OneRun(run_id)


def _read_decision(entry: ResumeEntry) -> _ResumeDecision:
    payload = {"approved": entry.payload} if isinstance(entry.payload, bool) else entry.payload
    return _read(payload, _ResumeDecision, entry, '{"approved": true}')


def _read_answer(entry: ResumeEntry) -> str:
    payload: Any = {"answer": entry.payload} if isinstance(entry.payload, str) else entry.payload
    answer = _read(payload, _ResumeAnswer, entry, '{"answer": "…"}').answer
    if not answer.strip():
        raise ProtocolError("invalid_payload", f"The answer to {entry.interrupt_id} is empty. Send a text.")
    return answer


def _read(payload: Any, kind: Any, entry: ResumeEntry, example: str) -> Any:
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise ProtocolError(
            "invalid_payload", f"The payload for {entry.interrupt_id} is invalid: {error}. Send {example}."
        ) from None
