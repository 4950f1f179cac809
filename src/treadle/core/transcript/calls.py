"""Tool calls, with their approvals, questions and plans."""

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.core.transcript.item_store import ItemStore
from treadle.core.transcript.writing import FIRST_CALL_PART, make_key
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import ApprovalId
from treadle.domain.messages import ToolUse
from treadle.domain.transcript import (
    ApprovalItem,
    CallItem,
    CallState,
    PlanItem,
    PlanStep,
    QuestionItem,
    TextAppended,
)

PLAN_TOOL = "update_plan"
QUESTION_TOOL = "clarify"
MAX_OUTPUT_CHARACTERS = 64_000
"""The end of the output of a call in progress that is kept."""


class CallFold:
    """Applies the events of calls."""

    def __init__(self, store: ItemStore) -> None:
        self._store = store
        self._calls: dict[str, CallItem] = {}
        self._approvals: dict[ApprovalId, ApprovalItem] = {}
        self._questions: dict[str, QuestionItem] = {}

    # ── Live output ──

    def add_output(self, data: e.ToolCallProgress) -> None:
        """Add what a call in progress has printed."""
        call = self._calls.get(data.call_id)
        if call is None or call.state != "running":
            return
        known = call.output_start + len(call.output)
        if data.offset > known and not call.output:  # the beginning was dropped before this reader came
            call, known = replace(call, output_start=data.offset), data.offset
        news = data.text[known - data.offset :] if data.offset <= known else ""
        if not news:
            return
        output, start = call.output + news, call.output_start
        if len(output) > 2 * MAX_OUTPUT_CHARACTERS:
            start += len(output) - MAX_OUTPUT_CHARACTERS
            output = output[-MAX_OUTPUT_CHARACTERS:]
        self._calls[data.call_id] = replace(call, output=output, output_start=start)
        self._store.note(TextAppended(call.key, "output", known, news))

    def list_with_output(self) -> list[CallItem]:
        """Return the calls in progress that have printed something."""
        return [call for call in self._calls.values() if call.output]

    def show_output(self, item: CallItem) -> CallItem:
        """Return a stored call with what it has printed so far."""
        return self._calls.get(item.call_id, item)

    # ── Calls ──

    def request(self, use: ToolUse, index: int, request: int, step: int, event: Event, is_shown: bool) -> None:
        """Add a call that a reply requests."""
        part = FIRST_CALL_PART + index
        call = CallItem(
            key=make_key(request, part),
            run_id=event.run_id,
            sequence=request,
            part=part,
            at=event.timestamp,
            call_id=use.call_id,
            name=use.name,
            arguments=use.arguments,
            step=step,
        )
        self._put(call, is_shown)

    def apply(self, event: Event) -> None:
        """Apply an event that concerns a call."""
        match event.data:
            case e.ToolCallStart() as data:
                call = self._find(event, data.call_id, data.name)
                self._put(
                    replace(
                        call,
                        state="running",
                        arguments=data.arguments,
                        started_at=event.timestamp,
                        output="",
                        output_start=0,
                    )
                )
            case e.ToolCallEnd() as data:
                self._end(event, data)
            case e.ToolCallError() as data:
                self._fail(event, data)
            case e.ToolCallBlocked() | e.HookBlocked() as data:
                self._block(event, data)
            case e.AgentSpawn() as data:
                self._delegate(event, data)
            case _:
                self._apply_request(event)

    def close_all(self, is_cancelled: bool) -> None:
        """Close what the end of the run leaves open."""
        for call in list(self._calls.values()):
            if not call.is_final:
                self._close(call, "failed", error="cancelled" if is_cancelled else "interrupted")
        for approval in list(self._approvals.values()):
            if approval.state == "pending":
                self._put_approval(replace(approval, state="ended"))
        for question in list(self._questions.values()):
            if question.state == "open":
                self._put_question(replace(question, state="ended"))

    def _put(self, call: CallItem, is_shown: bool = False) -> None:
        self._calls[call.call_id] = call
        self._store.put(call, is_shown)

    def _find(self, event: Event, call_id: str, name: str) -> CallItem:
        """Return a call. One whose reply is not among the events begins with the event."""
        known = self._calls.get(call_id)
        if known is not None:
            return known
        return CallItem(
            key=make_key(event.sequence, FIRST_CALL_PART),
            run_id=event.run_id,
            sequence=event.sequence,
            part=FIRST_CALL_PART,
            at=event.timestamp,
            call_id=call_id,
            name=name,
        )

    def _end(self, event: Event, data: e.ToolCallEnd) -> None:
        call = self._find(event, data.call_id, data.name)
        self._close(
            call,
            "failed" if data.exit_code else "done",
            result=take_excerpt(data.content, data.excerpt),
            duration_ms=data.duration_ms,
            exit_code=data.exit_code,
            truncated=data.truncated,
            images=data.images,
        )
        if data.name == PLAN_TOOL and (steps := read_plan(call.arguments)):
            self._store.put(
                PlanItem(
                    key=make_key(event.sequence),
                    run_id=event.run_id,
                    sequence=event.sequence,
                    at=event.timestamp,
                    call_id=data.call_id,
                    steps=steps,
                )
            )

    def _fail(self, event: Event, data: e.ToolCallError) -> None:
        call = self._find(event, data.call_id, data.name)
        self._close(
            call,
            "denied" if data.kind == "denied" else "failed",
            result=take_excerpt(data.content, data.excerpt),
            duration_ms=data.duration_ms,
            exit_code=data.exit_code,
            truncated=data.truncated,
            error=data.kind,
            cause=data.cause,
            exception=data.exception,
        )
        question = self._questions.get(data.call_id)
        if question is not None and question.state == "open":
            self._put_question(replace(question, state="ended"))

    def _block(self, event: Event, data: e.ToolCallBlocked | e.HookBlocked) -> None:
        call = self._find(event, data.call_id, data.name)
        if isinstance(data, e.HookBlocked):
            result, by = take_excerpt(data.content, data.excerpt), f"hook {data.hook}"
        else:
            result, by = data.content, f"{data.guard} guard"
        self._close(call, "blocked", result=result, blocked_by=by)

    def _close(self, call: CallItem, state: CallState, **facts: object) -> None:
        self._put(replace(call, state=state, output="", output_start=0, **facts))

    def _delegate(self, event: Event, data: e.AgentSpawn) -> None:
        call = self._calls.get(data.call_id)  # an evaluation belongs to no call
        if call is not None:
            self._put(
                replace(
                    call,
                    state="running",
                    arguments=data.arguments or call.arguments,
                    started_at=event.timestamp,
                )
            )

    # ── Approvals and questions ──

    def _apply_request(self, event: Event) -> None:
        match event.data:
            case e.ApprovalRequested() as data:
                call = self._find(event, data.call_id, data.name)
                self._put(replace(call, state="approval", arguments=data.arguments))
                self._put_approval(_make_approval(event, data))
            case e.ApprovalDecided() as data:
                self._decide(data)
            case e.ApprovalExpired(approval_id=approval_id):
                if (known := self._approvals.get(approval_id)) is not None:
                    self._put_approval(replace(known, state="expired"))
            case e.ClarifyRequested() as data:
                if data.during is None:
                    self._put(replace(self._find(event, data.call_id, QUESTION_TOOL), state="question"))
                self._put_question(_make_question(event, data))
            case e.ClientCallRequested() as data:
                call = self._find(event, data.call_id, data.name)
                asked = replace(call, state="client", arguments=data.arguments, started_at=event.timestamp)
                self._put(asked)
            case e.ClarifyAnswered(call_id=call_id, text=text, by=by):
                if (asked := self._questions.get(call_id)) is not None:
                    self._put_question(replace(asked, state="answered", answer=text, by=by))
            case _:
                pass

    def _decide(self, data: e.ApprovalDecided) -> None:
        approval = self._approvals.get(data.approval_id)
        if approval is None:
            return
        is_approved = data.decision == "approve"
        self._put_approval(
            replace(
                approval,
                state="approved" if is_approved else "denied",
                decision=data.decision,
                by=data.by,
                note=data.note,
                edited_arguments=data.arguments,
                remember=data.remember,
                superseded=data.superseded,
            )
        )
        call = self._calls.get(approval.call_id)
        if call is None:
            return
        if is_approved:
            edited = data.arguments is not None
            arguments = data.arguments if data.arguments is not None else call.arguments
            self._put(replace(call, state="pending", arguments=arguments, note=data.note, edited=edited))
        else:
            self._put(replace(call, state="denied", note=data.note))

    def _put_approval(self, approval: ApprovalItem) -> None:
        self._approvals[approval.approval_id] = approval
        self._store.put(approval)

    def _put_question(self, question: QuestionItem) -> None:
        self._questions[question.call_id] = question
        self._store.put(question)


def _make_approval(event: Event, data: e.ApprovalRequested) -> ApprovalItem:
    return ApprovalItem(
        key=make_key(event.sequence),
        run_id=event.run_id,
        sequence=event.sequence,
        at=event.timestamp,
        approval_id=data.approval_id,
        call_id=data.call_id,
        name=data.name,
        arguments=data.arguments,
        reason=data.reason,
        pattern=data.pattern,
        destructive=data.destructive,
        is_plan=data.is_plan,
        concern=data.concern,
        places=data.places,
        expires_at=data.expires_at,
    )


def _make_question(event: Event, data: e.ClarifyRequested) -> QuestionItem:
    return QuestionItem(
        key=make_key(event.sequence),
        run_id=event.run_id,
        sequence=event.sequence,
        at=event.timestamp,
        call_id=data.call_id,
        question=data.question,
        options=data.options,
        during=data.during,
        expires_at=data.expires_at,
    )


class _PlanEntry(Struct):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class _PlanArguments(Struct):
    entries: tuple[_PlanEntry, ...]


def read_plan(arguments: str) -> tuple[PlanStep, ...]:
    """Return the steps of the plan that a call of `update_plan` sets; none if the arguments are not valid."""
    try:
        plan = msgspec.json.decode(arguments, type=_PlanArguments)
    except msgspec.DecodeError:
        return ()
    return tuple(PlanStep(entry.content, entry.status, entry.priority) for entry in plan.entries)
