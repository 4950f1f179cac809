"""Events into state, one at a time. There is no other way for a run to change.

Each kind of event has one function here. Deliveries touch only what waits to be considered (the inbox, a wish to
stop), never what the owner's own facts touch. So a delivery and a fact give the same state in either order, and an
owner that has folded its facts need not start over when it learns that something was delivered before them."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from treadle.core.context import preamble
from treadle.core.ledger import FAILURES_WARN
from treadle.core.retry import MOST_KEYS
from treadle.core.state import RunState, StepTally, joined
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.identity import Instant
from treadle.domain.messages import Message, Text, ToolResult, ToolUse, user
from treadle.domain.observations import observation
from treadle.domain.runs import Usage

SILENT_TEXTS = ("NO_REPLY", "[SILENT]")
SILENT_STORED = "[no reply needed]"

Data = TypeVar("Data", bound=EventData)
_changes: dict[type[EventData], Callable[[RunState, Any], None]] = {}


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
    return state


def fold(state: RunState, data: EventData, sequence: int, at: Instant) -> None:
    """Let one more event have happened."""
    state.sequence, state.latest_at = sequence, at
    change = _changes.get(type(data))
    if change is not None:  # else it was written by a later version, or is of no consequence to what comes next
        change(state, data)


def on(kind: type[Data]) -> Callable[[Callable[[RunState, Data], None]], Callable[[RunState, Data], None]]:
    """What an event of this kind changes."""

    def register(change: Callable[[RunState, Data], None]) -> Callable[[RunState, Data], None]:
        _changes[kind] = change
        return change

    return register


# ── The life of a run ──────────────────────────────────────────────────────────────────────────────


@on(e.RunQueued)
def _queued(state: RunState, data: e.RunQueued) -> None:
    state.agent, state.asker = data.agent, data.asker


@on(e.UserMessage)
def _asked(state: RunState, data: e.UserMessage) -> None:
    state.inbox.append(data.message)


@on(e.RunStart)
def _started(state: RunState, data: e.RunStart) -> None:
    state.status, state.started_at = "running", state.latest_at
    state.tools = {spec.name: spec for spec in data.tools}
    state.preamble = preamble(state.agent, data.tools)
    limit = state.agent.limits.deadline_seconds
    state.deadline = None if limit is None else state.latest_at + limit


@on(e.ModelResolved)
def _resolved(state: RunState, data: e.ModelResolved) -> None:
    state.model, state.route = data, data.route


@on(e.RunWaiting)
def _waits(state: RunState, data: e.RunWaiting) -> None:
    state.status, state.waiting = "waiting", data


@on(e.RunRecovered)
def _recovered(state: RunState, _: e.RunRecovered) -> None:
    state.status = "running"
    state.recoveries += 1


@on(e.RunEnd)
def _ended(state: RunState, data: e.RunEnd) -> None:
    state.status, state.outcome = data.status, data.outcome
    state.step.open = False


# ── Deliveries ─────────────────────────────────────────────────────────────────────────────────────


@on(e.MessageSteered)
def _steered(state: RunState, data: e.MessageSteered) -> None:
    state.inbox.append(data.message)
    state.steered = "interrupt" if "interrupt" in (data.mode, state.steered) else "queue"
    state.interrupted, state.waiting = None, None


@on(e.RunInterrupted)
def _interrupted(state: RunState, data: e.RunInterrupted) -> None:
    state.interrupted = data.reason


@on(e.ResumeRequested)
def _resumed(state: RunState, _: e.ResumeRequested) -> None:
    if state.interrupted is not None:
        state.inbox.append(user("(You were interrupted. Go on where you stopped.)"))
    state.interrupted, state.waiting = None, None


@on(e.CancelRequested)
def _cancelled(state: RunState, data: e.CancelRequested) -> None:
    state.cancelled = data.reason


@on(e.ApprovalDecided)
def _decided(state: RunState, data: e.ApprovalDecided) -> None:
    state.decisions.setdefault(data.approval_id, data)
    state.waiting = None


@on(e.ClarifyAnswered)
def _answered(state: RunState, data: e.ClarifyAnswered) -> None:
    state.answers.setdefault(data.call_id, data)
    state.waiting = None


# ── Steps and model calls ──────────────────────────────────────────────────────────────────────────


@on(e.StepStart)
def _step_started(state: RunState, data: e.StepStart) -> None:
    state.step = StepTally(data.step, open=True, began_at=state.latest_at)


@on(e.LlmRequest)
def _requested(state: RunState, data: e.LlmRequest) -> None:
    state.status, state.waiting = "running", None
    if state.inbox:
        state.transcript.add(joined(state.inbox))
        state.inbox = []
    state.request, state.in_flight, state.steered = state.sequence, True, None
    state.retry_at, state.failure = None, None
    state.reply, state.calls, state.open_calls = None, [], []
    state.step.attempts += 1
    state.tally.model_calls += 1
    state.tally.repeated_calls += data.repeats_lost
    if not data.tools_offered:
        state.recovery.report_due = False


@on(e.LlmResponse)
def _replied(state: RunState, data: e.LlmResponse) -> None:
    state.in_flight, state.failures, state.recoveries, state.keys_tried = False, 0, 0, 0
    state.reply = data
    _spent(state, data.usage, data.duration_ms, data.cost)
    if state.tally.first_token_ms is None:
        state.tally.first_token_ms = data.first_token_ms
    parts, text, uses = data.parts, "", list[ToolUse]()
    for part in parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            uses.append(part)
    said = text.strip()
    if data.stop == "interrupted":
        parts, uses = (Text(text),), []
    elif not uses and said in SILENT_TEXTS:
        parts = (Text(SILENT_STORED),)
    state.transcript.add(Message("assistant", parts))
    if not data.usage.estimated:
        state.counted_tokens = data.usage.input_tokens + data.usage.output_tokens
        state.counted_characters = state.transcript.characters
    state.calls = [state.ledger.ask(use, state.tools.get(use.name)) for use in uses]
    state.open_calls = state.calls.copy()
    for call_id, name in data.secrets:
        _held_secret(state, call_id, name)
    state.step.calls = len(uses)
    if state.continuations:
        state.answer_so_far += text
    elif said:
        state.answer_so_far = text
    if data.stop != "max_tokens" or uses:
        state.continuations = 0
    if said:
        state.step.told_something = True
    if said or uses:
        state.empty_turns = 0


def _held_secret(state: RunState, call_id: str, name: str) -> None:
    for call in state.calls:
        if call.call_id == call_id:
            call.secrets = (*call.secrets, name)


@on(e.LlmError)
def _attempt_failed(state: RunState, data: e.LlmError) -> None:
    state.in_flight, state.failure = False, data
    if data.next_key and state.keys_tried < MOST_KEYS:
        state.keys_tried += 1
    elif not data.repair:  # which is tried once
        state.failures += 1
    _spent(state, data.usage, data.duration_ms, data.cost)


@on(e.LlmRetry)
def _attempt_put_off(state: RunState, data: e.LlmRetry) -> None:
    state.failure, state.retry_at = None, data.wake_at
    state.plain = state.plain or data.plain


@on(e.LlmFallback)
def _fell_back(state: RunState, data: e.LlmFallback) -> None:
    state.route, state.model, state.plain = data.to, None, False
    state.fallbacks_used += 1
    state.failures, state.failure, state.retry_at, state.keys_tried = 0, None, None, 0
    state.fallback_reason = state.fallback_reason or data.reason


def _spent(state: RunState, usage: Usage, duration_ms: int, cost: float | None) -> None:
    tally, step = state.tally, state.step
    tally.input_tokens += usage.input_tokens
    tally.output_tokens += usage.output_tokens
    tally.cache_read_tokens += usage.cache_read_tokens
    tally.cache_write_tokens += usage.cache_write_tokens
    tally.estimated = tally.estimated or usage.estimated
    tally.model_ms += duration_ms
    if cost is None:
        tally.unpriced_calls += 1
    else:
        tally.cost += cost
    step.input_tokens += usage.input_tokens
    step.output_tokens += usage.output_tokens


@on(e.StepEnd)
def _step_ended(state: RunState, _: e.StepEnd) -> None:
    recovery = state.recovery
    recovery.refused_tool = None
    if state.step.told_something:
        recovery.quiet_steps = 0
    else:
        recovery.quiet_steps += 1
    if recovery.quiet_steps == 0 and state.ledger.worst_failure()[1] < FAILURES_WARN:
        recovery.stage, recovery.detected_at = None, 0
    state.step.open = False


# ── Calls ──────────────────────────────────────────────────────────────────────────────────────────


@on(e.ToolCallStart)
def _call_started(state: RunState, data: e.ToolCallStart) -> None:
    state.status, state.waiting = "running", None
    for call in state.calls:
        if call.call_id == data.call_id:
            call.phase = "started"
            call.attempts, call.started, call.arguments = data.attempt, state.sequence, data.arguments
    state.tally.actions += 1


@on(e.ToolCallEnd)
def _call_done(state: RunState, data: e.ToolCallEnd) -> None:
    content = observation("ok", data.content, data.duration_ms, data.exit_code, data.truncated)
    _call_ended(state, ToolResult(data.call_id, content), data.content, data.duration_ms)


@on(e.ToolCallError)
def _call_failed(state: RunState, data: e.ToolCallError) -> None:
    if data.kind == "cancelled":
        state.stopped.append(f"{data.name} ({data.call_id})")
    content = observation(data.kind, data.content, data.duration_ms, data.exit_code, data.truncated)
    result = ToolResult(data.call_id, content, is_error=True)
    if data.kind == "denied":  # which says nothing about the tool
        _call_refused(state, data.call_id, result, counts=False)
    else:
        _call_ended(state, result, data.content, data.duration_ms)


@on(e.ApprovalRequested)
def _approval_requested(state: RunState, data: e.ApprovalRequested) -> None:
    state.approvals[data.call_id] = data


@on(e.ClarifyRequested)
def _clarify_requested(state: RunState, data: e.ClarifyRequested) -> None:
    state.questions[data.call_id] = data


@on(e.ToolCallBlocked)
def _call_blocked(state: RunState, data: e.ToolCallBlocked) -> None:
    _call_refused(state, data.call_id, _blocked(data.call_id, data.content))


@on(e.HookBlocked)
def _call_blocked_by_hook(state: RunState, data: e.HookBlocked) -> None:
    _call_refused(state, data.call_id, _blocked(data.call_id, data.content))


def _blocked(call_id: str, content: str) -> ToolResult:
    return ToolResult(call_id, observation("blocked", content, 0), is_error=True)


def _call_refused(state: RunState, call_id: str, result: ToolResult, counts: bool = True) -> None:
    for call in state.calls:
        if call.call_id == call_id:
            state.ledger.refuse(call, result, counts)
    _answer_calls(state)


def _call_ended(state: RunState, result: ToolResult, told: str, duration_ms: int) -> None:
    state.recoveries = 0
    state.tally.tool_ms += duration_ms
    for call in state.calls:
        if call.call_id == result.call_id:
            news = state.ledger.end(call, result, told, state.tools.get(call.name))
            state.step.told_something = state.step.told_something or news
    _answer_calls(state)


def _answer_calls(state: RunState) -> None:
    """Once every call of the turn has its result, they go into the conversation, in the order of the calls."""
    state.open_calls = [call for call in state.calls if call.result is None]
    if not state.open_calls:
        results = [call.result for call in state.calls if call.result is not None]
        state.transcript.add(Message("tool", tuple(results)))


# ── Guards ─────────────────────────────────────────────────────────────────────────────────────────


@on(e.StuckDetected)
def _stuck(state: RunState, data: e.StuckDetected) -> None:
    state.recovery.detected_at = data.count


@on(e.RecoveryAction)
def _recovery(state: RunState, data: e.RecoveryAction) -> None:
    recovery = state.recovery
    recovery.stage = data.stage
    recovery.refused_tool = data.tool if data.stage == "refuse_tool" else None
    recovery.report_due = data.stage == "report"
    _note(state, data.note)


@on(e.LoopWarning)
def _looped(state: RunState, data: e.LoopWarning) -> None:
    _note(state, data.note)


@on(e.EmptyTurn)
def _said_nothing(state: RunState, data: e.EmptyTurn) -> None:
    state.empty_turns = data.count
    _note(state, data.note)


@on(e.Continuation)
def _cut_short(state: RunState, data: e.Continuation) -> None:
    state.continuations = data.count
    _note(state, data.note)


@on(e.OutputRejected)
def _rejected(state: RunState, data: e.OutputRejected) -> None:
    state.rejected_outputs = data.count
    _note(state, data.note)


@on(e.PhantomAction)
def _claimed(state: RunState, data: e.PhantomAction) -> None:
    state.phantom_claims, state.claimed = data.count, (state.answer, data.claim)
    _note(state, data.note)


@on(e.BudgetHint)
def _hinted(state: RunState, data: e.BudgetHint) -> None:
    state.hinted_percent = data.percent
    _note(state, data.note)


def _note(state: RunState, text: str) -> None:
    """Tell the model, with the next request."""
    state.inbox.append(user(f"[note from the engine, not from the user] {text}"))
