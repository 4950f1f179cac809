"""Events into state, one at a time. There is no other way for a run to change.

Deliveries touch only what waits to be considered (the inbox, a wish to stop), never what the owner's own facts
touch. So a delivery and a fact give the same state in either order, and an owner that has folded its facts need
not start over when it learns that something was delivered before them."""

from collections.abc import Iterable

from treadle.core.context import preamble
from treadle.core.ledger import FAILURES_WARN
from treadle.core.state import RunState, StepTally, joined
from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.identity import Instant
from treadle.domain.messages import Message, Text, ToolResult, ToolUse, user
from treadle.domain.runs import Usage

SILENT_TEXTS = ("NO_REPLY", "[SILENT]")
SILENT_STORED = "[no reply needed]"


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
    return state


def fold(state: RunState, data: EventData, sequence: int, at: Instant) -> None:
    """Let one more event have happened."""
    state.sequence = sequence
    match data:
        case e.LlmRequest():
            _requested(state, data, sequence)
        case e.LlmResponse():
            _replied(state, data)
        case e.ToolCallStart():
            _call_started(state, data, sequence)
        case e.ToolCallEnd():
            _call_ended(state, ToolResult(data.call_id, data.content), data.duration_ms)
        case e.ToolCallError():
            if data.kind == "cancelled":
                state.stopped.append(f"{data.name} ({data.call_id})")
            _call_ended(state, ToolResult(data.call_id, data.content, is_error=True), data.duration_ms)
        case e.ToolCallBlocked():
            _call_blocked(state, data)
        case e.StepStart():
            state.step = StepTally(data.step, open=True, began_at=at)
        case e.StepEnd():
            _step_ended(state)
        case e.LlmError() | e.LlmRetry():
            _attempt_failed(state, data)
        case e.MessageSteered() | e.RunInterrupted() | e.ResumeRequested() | e.CancelRequested():
            _delivered(state, data)
        case e.LoopWarning() | e.StuckDetected() | e.RecoveryAction() | e.EmptyTurn() | e.Continuation():
            _guarded(state, data)
        case e.OutputRejected() | e.BudgetHint():
            _guarded(state, data)
        case _:
            _lived(state, data, at)


def _lived(state: RunState, data: EventData, at: Instant) -> None:
    """The life of a run: queued, started, waiting, taken over, ended."""
    match data:
        case e.RunQueued(agent):
            state.agent = agent
        case e.UserMessage(message):
            state.inbox.append(message)
        case e.RunStart(tools):
            state.status, state.started_at = "running", at
            state.tools = {spec.name: spec for spec in tools}
            state.preamble = preamble(state.agent, tools)
            limit = state.agent.limits.deadline_seconds
            state.deadline = None if limit is None else at + limit
        case e.ModelResolved():
            state.model = data
        case e.RunWaiting():
            state.status, state.waiting = "waiting", data
        case e.RunRecovered():
            state.status = "running"
            state.recoveries += 1
        case e.RunEnd(status, outcome):
            state.status, state.outcome = status, outcome
            state.step.open = False
        case _:
            pass  # written by a later version, or of no consequence to what comes next


def _requested(state: RunState, data: e.LlmRequest, sequence: int) -> None:
    state.status, state.waiting = "running", None
    if state.inbox:
        state.transcript.add(joined(state.inbox))
        state.inbox = []
    state.request, state.in_flight, state.steered = sequence, True, None
    state.retry_at, state.failure = None, None
    state.reply, state.calls = None, []
    state.step.attempts += 1
    state.tally.model_calls += 1
    state.tally.repeated_calls += data.repeats_lost
    if not data.tools_offered:
        state.recovery.report_due = False


def _replied(state: RunState, data: e.LlmResponse) -> None:
    state.in_flight, state.failures, state.recoveries = False, 0, 0
    state.reply = data
    _spent(state, data.usage, data.duration_ms)
    if state.tally.first_token_ms is None:
        state.tally.first_token_ms = data.first_token_ms
    parts, text, uses = data.parts, "", list[ToolUse]()
    for part in parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            uses.append(part)
    if data.stop == "interrupted":
        parts, uses = (Text(text),), []
    elif not uses and text.strip() in SILENT_TEXTS:
        parts = (Text(SILENT_STORED),)
    state.transcript.add(Message("assistant", parts))
    state.calls = [state.ledger.ask(use, state.tools.get(use.name)) for use in uses]
    state.step.calls = len(uses)
    if text and not text.isspace():
        state.step.told_something = True
    if state.continuations:
        state.answer_so_far += text
    elif text.strip():
        state.answer_so_far = text
    if data.stop != "max_tokens" or state.calls:
        state.continuations = 0
    if text.strip() or state.calls:
        state.empty_turns = 0


def _attempt_failed(state: RunState, data: e.LlmError | e.LlmRetry) -> None:
    match data:
        case e.LlmError():
            state.in_flight, state.failure = False, data
            state.failures += 1
            _spent(state, data.usage, data.duration_ms)
        case e.LlmRetry():
            state.failure, state.retry_at = None, data.wake_at


def _spent(state: RunState, usage: Usage, duration_ms: int) -> None:
    tally, step = state.tally, state.step
    tally.input_tokens += usage.input_tokens
    tally.output_tokens += usage.output_tokens
    tally.cache_read_tokens += usage.cache_read_tokens
    tally.cache_write_tokens += usage.cache_write_tokens
    tally.estimated = tally.estimated or usage.estimated
    tally.model_ms += duration_ms
    step.input_tokens += usage.input_tokens
    step.output_tokens += usage.output_tokens


def _call_started(state: RunState, data: e.ToolCallStart, sequence: int) -> None:
    state.status, state.waiting = "running", None
    for call in state.calls:
        if call.call_id == data.call_id:
            call.phase = "started"
            call.attempts, call.started = data.attempt, sequence
    state.tally.actions += 1


def _call_blocked(state: RunState, data: e.ToolCallBlocked) -> None:
    for call in state.calls:
        if call.call_id == data.call_id:
            state.ledger.refuse(call, ToolResult(data.call_id, data.content, is_error=True))
    _answer_calls(state)


def _call_ended(state: RunState, result: ToolResult, duration_ms: int) -> None:
    state.recoveries = 0
    state.tally.tool_ms += duration_ms
    for call in state.calls:
        if call.call_id == result.call_id:
            news = state.ledger.end(call, result, state.tools.get(call.name))
            state.step.told_something = state.step.told_something or news
    _answer_calls(state)


def _answer_calls(state: RunState) -> None:
    """Once every call of the turn has its result, they go into the conversation, in the order of the calls."""
    if all(call.phase == "ended" for call in state.calls):
        results = tuple(call.result for call in state.calls if call.result is not None)
        state.transcript.add(Message("tool", results))


def _step_ended(state: RunState) -> None:
    recovery = state.recovery
    recovery.refused_tool = None
    if state.step.told_something:
        recovery.quiet_steps = 0
    else:
        recovery.quiet_steps += 1
    if recovery.quiet_steps == 0 and state.ledger.worst_failure()[1] < FAILURES_WARN:
        recovery.stage, recovery.detected_at = None, 0
    state.step.open = False


def _delivered(state: RunState, data: e.Delivery) -> None:
    match data:
        case e.MessageSteered(message, mode):
            state.inbox.append(message)
            state.steered = "interrupt" if "interrupt" in (mode, state.steered) else "queue"
            state.interrupted, state.waiting = None, None
        case e.RunInterrupted(reason):
            state.interrupted = reason
        case e.ResumeRequested():
            if state.interrupted is not None:
                state.inbox.append(user("(You were interrupted. Go on where you stopped.)"))
            state.interrupted, state.waiting = None, None
        case e.CancelRequested(reason):
            state.cancelled = reason


def _guarded(state: RunState, data: EventData) -> None:
    """A guard spoke: remember that it did, and tell the model."""
    recovery = state.recovery
    match data:
        case e.LoopWarning():
            _note(state, data.note)
        case e.StuckDetected():
            recovery.detected_at = data.count
        case e.RecoveryAction():
            recovery.stage = data.stage
            recovery.refused_tool = data.tool if data.stage == "refuse_tool" else None
            recovery.report_due = data.stage == "report"
            _note(state, data.note)
        case e.EmptyTurn():
            state.empty_turns = data.count
            _note(state, data.note)
        case e.Continuation():
            state.continuations = data.count
            _note(state, data.note)
        case e.OutputRejected():
            state.rejected_outputs = data.count
            _note(state, data.note)
        case e.BudgetHint():
            state.hinted_percent = data.percent
            _note(state, data.note)
        case _:
            pass


def _note(state: RunState, text: str) -> None:
    state.inbox.append(user(f"[note from the engine, not from the user] {text}"))
