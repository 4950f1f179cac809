"""Folding events of child runs and evaluations."""

from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.core.subagents.child import Child
from treadle.domain import events as e
from treadle.domain.messages import user


@on(e.AgentSpawn)
def _on_agent_spawn(state: RunState, data: e.AgentSpawn) -> None:
    state.status, state.waiting = "running", None
    child = state.tree.children[data.call_id] = Child(data, state.latest_at, mode=data.mode)
    if data.end is not None:
        state.evaluation.evaluator = child
    if (call := state.find_call(data.call_id)) is not None:
        call.phase, call.attempts, call.started, call.arguments = "delegated", 1, state.sequence, data.arguments
        state.usage.actions += 1


@on(e.AgentEnd)
def _on_agent_end(state: RunState, data: e.AgentEnd) -> None:
    child = state.tree.children.get(data.call_id)
    if child is not None and child.end is None:
        child.end = data
    state.waiting = None


@on(e.AgentTold)
def _on_agent_told(state: RunState, data: e.AgentTold) -> None:
    for call_id in data.call_ids:
        child = state.tree.children[call_id]
        if data.what == "mode":
            child.mode = data.mode
            continue
        child.signal, child.signalled_at = None if data.what == "resume" else data.what, state.latest_at


@on(e.AgentWaiting)
def _on_agent_waiting(state: RunState, data: e.AgentWaiting) -> None:
    child = state.tree.children.get(data.call_id)
    if child is not None:
        child.paused_since = child.paused_since if child.waiting else state.latest_at
        child.waiting.add(data.run_id)


@on(e.AgentAnswered)
def _on_agent_answered(state: RunState, data: e.AgentAnswered) -> None:
    if not data.call_id:
        state.tree.is_wait_reported = False
        return
    child = state.tree.children.get(data.call_id)
    if child is not None and data.run_id in child.waiting:
        child.waiting.discard(data.run_id)
        child.paused_seconds += 0.0 if child.waiting else max(0.0, state.latest_at - child.paused_since)


@on(e.QualityScored)
def _on_quality_scored(state: RunState, data: e.QualityScored) -> None:
    state.evaluation.verdicts.append(data)
    child, state.evaluation.evaluator, state.evaluation.evaluated_request = (
        state.evaluation.evaluator,
        None,
        state.attempts.request,
    )
    if data.note:
        state.evaluation.fallback_end = None if child is None else child.spawn.end
        state.turn.inbox.append(user(data.note))
        state.turn.answer_so_far = ""


@on(e.ErrorAnalyzed)
def _on_error_analyzed(state: RunState, data: e.ErrorAnalyzed) -> None:
    state.evaluation.analyzed, state.evaluation.evaluator = data, None
