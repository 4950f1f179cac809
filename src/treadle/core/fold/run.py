"""Folding the start, the end and the waits of a run, and deliveries to it."""

from typing import get_args

import msgspec

from treadle.core.accounts import list_account_ceilings, list_model_call_accounts, list_tree_ceilings
from treadle.core.context.projection import set_preamble
from treadle.core.context.tokens import TokenCount
from treadle.core.fold.registry import on
from treadle.core.state import RunState
from treadle.core.suspicion import MODEL_CALL
from treadle.core.tools.modes import PLAN_NOTE, PLAN_OVER_NOTE
from treadle.domain import events as e
from treadle.domain.messages import user

FOR_PEOPLE: tuple[str, ...] = get_args(e.ReviewerWait)


@on(e.RunQueued)
def _on_run_queued(state: RunState, data: e.RunQueued) -> None:
    state.agent, state.review.asker, state.command = data.agent, data.asker, data.command
    state.review.mode = data.mode
    state.tree.queued = data
    state.tree.ceilings = list_tree_ceilings(state.origin.run_id, data.agent, data.lineage)
    state.accounts = (
        *list_account_ceilings(data.agent, data.token, data.token_quotas, data.lineage),
        *list_model_call_accounts(state.tree.ceilings),
    )
    state.credits_per_dollar = data.credits_per_dollar
    state.prompt.instructions = data.instructions
    for message in data.before:
        state.transcript.add(message)


@on(e.HeartbeatFired)
def _on_heartbeat_fired(state: RunState, _: e.HeartbeatFired) -> None:
    state.is_scheduled = True


@on(e.UserMessage)
def _on_user_message(state: RunState, data: e.UserMessage) -> None:
    state.turn.inbox.append(data.message)
    if state.review.mode == "plan":
        state.turn.inbox.append(user(PLAN_NOTE))
    state.submitted_text = data.message.text
    state.texts_to_recall.append(state.submitted_text)


@on(e.RunStart)
def _on_run_start(state: RunState, data: e.RunStart) -> None:
    state.status, state.started_at = "running", state.latest_at
    state.tools = {name: spec for spec in data.tools for name in (spec.name, *spec.aliases)}
    state.prompt.sections, state.prompt.notes = data.sections, data.notes
    state.prompt.guidance = data.guidance
    if data.persona is not None:
        state.agent = msgspec.structs.replace(state.agent, persona=data.persona)
    if data.recall is not None:
        memory = msgspec.structs.replace(state.agent.memory, recall=data.recall)
        state.agent = msgspec.structs.replace(state.agent, memory=memory)
    set_preamble(state, data.tools, state.prompt.recalled)
    limit = state.agent.limits.deadline_seconds
    state.deadline = None if limit is None else state.latest_at + limit


@on(e.ModelResolved)
def _on_model_resolved(state: RunState, data: e.ModelResolved) -> None:
    state.model, state.attempts.route = data, data.route
    model = (data.provider, data.model)
    if state.context.counted_by not in (None, model):
        state.context.tokens = TokenCount(before=state.context.tokens.before)  # another model counts differently
    state.context.counted_by = model


@on(e.RunWaiting)
def _on_run_waiting(state: RunState, data: e.RunWaiting) -> None:
    state.status, state.waiting = "waiting", data
    if state.lineage is not None and state.lineage.above and data.reason in FOR_PEOPLE:
        state.tree.is_wait_reported = True


@on(e.RunRecovered)
def _on_run_recovered(state: RunState, data: e.RunRecovered) -> None:
    state.status = "running"
    running = frozenset(call.name for call in state.open_calls if call.phase == "started")
    state.guards.suspicion.count_death(data, running or frozenset((MODEL_CALL,)))


@on(e.TrialStarted)
def _on_trial_started(state: RunState, data: e.TrialStarted) -> None:
    state.guards.suspicion.trial = data


@on(e.RunEnd)
def _on_run_end(state: RunState, data: e.RunEnd) -> None:
    state.status, state.outcome = data.status, data.outcome
    state.step.is_open = False


# ── Deliveries ─────────────────────────────────────────────────────────────────────────────────────


@on(e.MessageSteered)
def _on_message_steered(state: RunState, data: e.MessageSteered) -> None:
    state.turn.inbox.append(data.message)
    state.texts_to_recall.append(data.message.text)
    state.steer_mode = "interrupt" if "interrupt" in (data.mode, state.steer_mode) else "steer"
    state.interrupted, state.waiting, state.evaluation.fallback_end = None, None, None
    state.is_scheduled = False


@on(e.RunInterrupted)
def _on_run_interrupted(state: RunState, data: e.RunInterrupted) -> None:
    state.interrupted = data.reason


@on(e.ResumeRequested)
def _on_resume_requested(state: RunState, _: e.ResumeRequested) -> None:
    if state.interrupted is not None and state.evaluation.evaluator is None:  # else it had nothing left to say
        state.turn.inbox.append(user("(You were interrupted. Go on where you stopped.)"))
    state.interrupted, state.waiting = None, None


@on(e.ModeChanged)
def _on_mode_changed(state: RunState, data: e.ModeChanged) -> None:
    before, state.review.mode = state.review.mode, data.mode
    if (before == "plan") != (data.mode == "plan"):
        state.turn.inbox.append(user(PLAN_NOTE if data.mode == "plan" else PLAN_OVER_NOTE))


@on(e.CancelRequested)
def _on_cancel_requested(state: RunState, data: e.CancelRequested) -> None:
    state.cancelled = data.reason


@on(e.ApprovalDecided)
def _on_approval_decided(state: RunState, data: e.ApprovalDecided) -> None:
    state.review.decisions.setdefault(data.approval_id, data)
    state.waiting = None


@on(e.ClarifyAnswered)
def _on_clarify_answered(state: RunState, data: e.ClarifyAnswered) -> None:
    state.review.answers.setdefault(data.call_id, data)
    state.waiting = None


@on(e.ClientResult)
def _on_client_result(state: RunState, data: e.ClientResult) -> None:
    call = state.review.client_calls.get(data.call_id)
    if call is not None and call.result is None:
        call.result, call.delivered_at = data, state.latest_at
        state.review.next_choice = None if data.tool_choice is None else (state.step.number + 1, data.tool_choice)
    state.waiting = None
