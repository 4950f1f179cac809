"""Folding tool calls: requested, started, refused, ended."""

from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.core.sub_states import RequestedCall
from treadle.domain import events as e
from treadle.domain.messages import Message, ToolResult
from treadle.domain.observations import make_header

NOT_RUN = ("denied", "skipped", "too_many", "unknown_tool")
"""Errors of calls that never ran."""


@on(e.ToolCallStart)
def _on_tool_call_start(state: RunState, data: e.ToolCallStart) -> None:
    state.status, state.waiting = "running", None
    if (call := state.find_call(data.call_id)) is not None:
        call.phase = "started"
        call.attempts, call.started, call.arguments = data.attempt, state.sequence, data.arguments
        call.files = data.files
    state.usage.actions += 1


@on(e.ToolCallEnd)
def _on_tool_call_end(state: RunState, data: e.ToolCallEnd) -> None:
    state.guards.suspicion.finish(data.name)
    content = _render_observation("ok", data)
    _end_call(state, ToolResult(data.call_id, content, images=data.images), data.content, data.duration_ms)


@on(e.ToolCallError)
def _on_tool_call_error(state: RunState, data: e.ToolCallError) -> None:
    if data.kind == "interrupted":
        state.step.interrupted = True
    elif data.kind not in NOT_RUN:
        state.guards.suspicion.finish(data.name)
    if data.kind == "cancelled":
        state.stopped.append(f"{data.name} ({data.call_id})")
    content = _render_observation(data.kind, data)
    result = ToolResult(data.call_id, content, is_error=True)
    if data.kind in ("denied", "too_many"):  # such a refusal says nothing about the tool
        _refuse_call(state, data.call_id, result, counts=False)
    else:
        _end_call(state, result, data.content, data.duration_ms)


@on(e.ApprovalRequested)
def _on_approval_requested(state: RunState, data: e.ApprovalRequested) -> None:
    state.review.approvals[data.call_id] = data


@on(e.ClarifyRequested)
def _on_clarify_requested(state: RunState, data: e.ClarifyRequested) -> None:
    state.review.questions[data.call_id] = data


@on(e.ClientCallRequested)
def _on_client_call_requested(state: RunState, data: e.ClientCallRequested) -> None:
    state.review.client_calls[data.call_id] = RequestedCall(state.latest_at, data.expires_at)
    if (call := state.find_call(data.call_id)) is not None:
        call.phase, call.arguments = "requested", data.arguments
    state.usage.actions += 1


@on(e.ToolCallBlocked)
def _on_tool_call_blocked(state: RunState, data: e.ToolCallBlocked) -> None:
    _refuse_call(state, data.call_id, _make_blocked_result(data.call_id, data.content))


@on(e.HookBlocked)
def _on_hook_blocked(state: RunState, data: e.HookBlocked) -> None:
    _refuse_call(state, data.call_id, _make_blocked_result(data.call_id, data.content))


def _render_observation(status: str, data: e.ToolCallEnd | e.ToolCallError) -> str:
    if isinstance(data, e.ToolCallEnd) and data.plain:
        return data.content
    return make_header(status, data.duration_ms, data.exit_code, data.truncated) + data.content


def _make_blocked_result(call_id: str, content: str) -> ToolResult:
    return ToolResult(call_id, make_header("blocked", 0) + content, is_error=True)


def _refuse_call(state: RunState, call_id: str, result: ToolResult, counts: bool = True) -> None:
    if (call := state.find_call(call_id)) is not None:
        state.turn.unanswered_calls -= call.result is None
        state.ledger.add_refusal(call, result, counts)
    _answer_calls(state)


def _end_call(state: RunState, result: ToolResult, content: str, duration_ms: int) -> None:
    state.usage.tool_ms += duration_ms
    if (call := state.find_call(result.call_id)) is not None:
        state.turn.unanswered_calls -= call.result is None
        is_new = state.ledger.add_result(call, result, content, state.tools.get(call.name))
        state.step.has_news = state.step.has_news or is_new
    _answer_calls(state)


def _answer_calls(state: RunState) -> None:
    """Add the results to the transcript, in the order of the calls, once every call of the turn has one."""
    if state.turn.unanswered_calls == 0:
        results = [call.result for call in state.turn.calls if call.result is not None]
        state.transcript.add(Message("tool", tuple(results)))
