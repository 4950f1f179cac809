"""Folding the guards' findings and their notes to the model."""

from msgspec.structs import replace

from treadle.core.context.memory_prompt import NOTE
from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.domain import events as e
from treadle.domain.messages import user


@on(e.StuckDetected)
def _on_stuck_detected(state: RunState, data: e.StuckDetected) -> None:
    state.guards.recovery.detected_at = data.count


@on(e.RecoveryAction)
def _on_recovery_action(state: RunState, data: e.RecoveryAction) -> None:
    recovery = state.guards.recovery
    recovery.stage = data.stage
    recovery.refused_tool = data.tool if data.stage == "refuse_tool" else None
    recovery.report_due = data.wants_report
    _add_note(state, data.note)


@on(e.LoopWarning)
def _on_loop_warning(state: RunState, data: e.LoopWarning) -> None:
    _add_note(state, data.note)


@on(e.EmptyTurn)
def _on_empty_turn(state: RunState, data: e.EmptyTurn) -> None:
    state.guards.empty_turns = data.count
    _add_note(state, data.note)


@on(e.Continuation)
def _on_continuation(state: RunState, data: e.Continuation) -> None:
    state.guards.continuations = data.count
    _add_note(state, data.note)


@on(e.CallWritten)
def _on_call_written(state: RunState, data: e.CallWritten) -> None:
    state.guards.written_calls = data.count
    _add_note(state, data.note)


@on(e.CallsDropped)
def _on_calls_dropped(state: RunState, data: e.CallsDropped) -> None:
    if state.turn.reply is not None:
        state.turn.reply = replace(state.turn.reply, excess_calls=0)
    _add_note(state, data.note)


@on(e.OutputRejected)
def _on_output_rejected(state: RunState, data: e.OutputRejected) -> None:
    state.guards.rejected_outputs = data.count
    _add_note(state, data.note)


@on(e.PhantomAction)
def _on_phantom_action(state: RunState, data: e.PhantomAction) -> None:
    state.guards.phantom_claims, state.guards.claimed_answer = data.count, (state.answer, data.claim)
    state.guards.actions_at_claim = state.usage.actions
    _add_note(state, data.note)


@on(e.BudgetHint)
def _on_budget_hint(state: RunState, data: e.BudgetHint) -> None:
    state.guards.hinted_percent = data.percent
    _add_note(state, data.note)


def _add_note(state: RunState, text: str) -> None:
    """Add a note to the next request."""
    state.turn.inbox.append(user(f"{NOTE} {text}"))
