"""Folding the start of a fork from the position of another run."""

from treadle.core.context.tokens import TokenCount
from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.domain import events as e


@on(e.RunForked)
def _on_run_forked(state: RunState, data: e.RunForked) -> None:
    messages = state.transcript.messages
    state.submitted_text = data.asked
    state.context.tasks = [messages[index] for index in data.tasks if index < len(messages)]
    state.attempts.route, state.attempts.plain, state.prompt.recalled = data.route, data.plain, data.recalled
    state.attempts.unconstrained = data.unconstrained
    if data.workspace:
        state.prompt.session_notes = (data.workspace, data.notes)
    for turn in data.calls:
        state.ledger.add_reused_calls(turn)
    _restore_counters(state, data.counters)
    if (known := data.measured) is not None:
        state.context.counted_by = (known.provider, known.model)
        state.context.tokens = TokenCount(
            before=0,
            unseen=known.unseen,
            counted=known.counted,
            guessed=known.guessed,
            rate=known.rate,
            reports=known.reports,
            added_counted=known.added_counted,
            added_guessed=known.added_guessed,
        )


def _restore_counters(state: RunState, counted: e.Counters) -> None:
    state.turn.answer_so_far, state.guards.continuations = counted.answer, counted.continuations
    state.guards.empty_turns, state.guards.rejected_outputs = counted.empty_turns, counted.rejected_outputs
    state.guards.phantom_claims = counted.claims
    state.guards.claimed_answer = (state.answer, counted.claim) if counted.claim else None
    state.guards.actions_at_claim = state.usage.actions
    recovery = state.guards.recovery
    recovery.quiet_steps, recovery.stage, recovery.detected_at = (
        counted.quiet_steps,
        counted.stage,
        counted.detected_at,
    )
    recovery.refused_tool, recovery.report_due = counted.refused_tool, counted.report_due
