"""The decision what a run does next. Pure: the same state and environment give the same step."""

from treadle.core import guards
from treadle.core.context.budget import exceeds_window, make_overflow, make_room, plan_compaction
from treadle.core.context.projection import estimate_input
from treadle.core.environment import Environment
from treadle.core.evaluation import evaluate_end, make_missing_verdict, read_verdict, remove_note
from treadle.core.final_marker import has_marker
from treadle.core.guards import phantom
from treadle.core.guards.quota import judge
from treadle.core.guards.refused import describe_rejection
from treadle.core.guards.verdict import StopVerdict, combine_verdicts
from treadle.core.retry import describe_long_wait, plan_fallback
from treadle.core.state import RunState
from treadle.core.steps import (
    CallModel,
    CollectChildren,
    Compact,
    Finish,
    NotifyResumed,
    RunSessionCommand,
    RunTools,
    Step,
    SwitchModel,
    TruncateResults,
    UseAlternative,
    find_reviewer_wait,
)
from treadle.core.subagents.child import Child
from treadle.core.subagents.supervision import (
    fit_into_tree,
    interrupt_children,
    resume_child,
    stop_children_first,
    wait_for_child,
)
from treadle.core.tools.plan import make_skipped, plan_calls
from treadle.domain.commands import CompactSession, SessionCommand
from treadle.domain.events import (
    AgentTold,
    CommandObeyed,
    CompactionFailed,
    ContextCompacted,
    EventData,
    LlmError,
    PhantomAction,
    QualityScored,
    RecoveryAction,
    RunWaiting,
)
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome
from treadle.domain.silence import is_silence
from treadle.domain.time_format import format_second

MAX_CLOCK_SKEW_SECONDS = 60.0
"""Maximum difference between the clocks of two machines that share a database."""
MORE_CAME = "Another message came first."


def decide(state: RunState, environment: Environment) -> Step:
    """Return the next step of a run that has started and not ended."""
    step = _decide(state, environment)
    if state.tree.is_wait_reported and not (isinstance(step, RunWaiting) and find_reviewer_wait(step)):
        return NotifyResumed()
    return _apply_availability(state, _apply_refusal(state, step, environment), environment)


def _apply_refusal(state: RunState, step: Step, environment: Environment) -> Step:
    """Return the step, or its replacement if an account refused to reserve what it needs."""
    refused = environment.refused
    if refused is None or not isinstance(step, CallModel | RunTools | Compact):
        return step
    if refused.kind == "runs":
        return fit_into_tree(state, step, refused) if isinstance(step, RunTools) else step
    replacement = judge(state, refused, environment.now)
    return prepare_end(state, replacement, environment.now) if isinstance(replacement, Finish) else replacement


def _apply_availability(state: RunState, step: Step, environment: Environment) -> Step:
    """Return the step, or its replacement if the model or a tool is missing or the model's breaker is open."""
    if environment.missing is not None:
        if state.command is not None and isinstance(step, Compact):
            return Finish(Outcome("failed", reason=environment.missing))
        needs_it = isinstance(step, CallModel | RunTools | Compact)
        return RunWaiting("unavailable", environment.missing, state.deadline) if needs_it else step
    breaker = environment.breaker
    if breaker is None or not isinstance(step, CallModel):
        return step
    if breaker.has_alternative:
        return UseAlternative()
    failing = f"{breaker.model} fails too often and is left alone for {breaker.seconds:.0f} s"
    fallback = plan_fallback(state, failing, "breaker", breaker.seconds)
    if fallback:
        return SwitchModel(fallback)
    wake_at = environment.now + breaker.seconds
    if state.deadline is not None:
        wake_at = min(wake_at, state.deadline)
    return RunWaiting("breaker", failing, wake_at, breaker_seconds=breaker.seconds)


def _decide(state: RunState, environment: Environment) -> Step:
    now = environment.now
    if state.evaluation.evaluator is not None and state.cancelled is None:
        return _await_verdict(state, state.evaluation.evaluator, now)
    step = _next_step(state, environment)
    return prepare_end(state, step, now) if isinstance(step, Finish) else step


def prepare_end(state: RunState, finish: Finish, now: Instant) -> Step:
    """Return what must happen before a run ends: its child runs have ended, and its end has been evaluated.

    A run that was to try again, and has nothing left for that, ends as it would have before."""
    child = state.evaluation.evaluator
    if child is not None and state.cancelled is None:
        verdict_event = remove_note(
            read_verdict(state, child, now) or make_missing_verdict(True, child.spawn.agent, MORE_CAME, child)
        )
        if state.steer_mode is None and child.spawn.end is not None:
            return Finish(child.spawn.end, (verdict_event, *finish.events))
        finish = Finish(finish.outcome, (verdict_event, *finish.events))
    ready = stop_children_first(state, finish, now)
    return evaluate_end(state, ready) if isinstance(ready, Finish) else ready


def _await_verdict(state: RunState, child: Child, now: Instant) -> Step:
    """Return the next step while the end of the run is evaluated: wait for the verdict, then end or try again."""
    end, verdict_event = child.spawn.end, read_verdict(state, child, now)
    assert end is not None, "a run that evaluates an end carries that end"
    if state.interrupted is not None:
        return interrupt_children(state) or RunWaiting("interrupted", state.interrupted)
    if state.steer_mode is not None and child.spawn.role == "quality":  # there is a new message to answer
        verdict_event = verdict_event or make_missing_verdict(True, child.spawn.agent, MORE_CAME, child)
        signal = stop_children_first(state, Finish(end), now) if child.signal != "cancel" else None
        if isinstance(signal, AgentTold):
            return signal
        step = _call_model(state, now, (remove_note(verdict_event),))
        return prepare_end(state, step, now) if isinstance(step, Finish) else step
    if verdict_event is None:
        return resume_child(child) or wait_for_child(state, child)
    if isinstance(verdict_event, QualityScored) and verdict_event.note:
        retry = _call_model(state, now, (verdict_event,))
        if not isinstance(retry, Finish):
            return retry
    finish = Finish(end, (remove_note(verdict_event),))
    return stop_children_first(state, finish, now) if child.signal != "cancel" else finish


def _next_step(state: RunState, environment: Environment) -> Step:
    now = environment.now
    stop = combine_verdicts(guards.ALWAYS, state, now)
    if isinstance(stop, StopVerdict):
        return _finish(state, stop)
    if state.open_calls and state.interrupted is None:
        return _plan_calls(state, now)
    if state.command is not None:
        return decide_command(state, state.command)
    if wait := _find_wait(state, now):
        return interrupt_children(state) or wait if wait.reason == "interrupted" else wait
    if state.attempts.failure is not None:
        return _plan_after_failure(state, state.attempts.failure)
    if state.turn.reply is not None and not state.turn.calls:
        verdict = combine_verdicts(guards.ANSWER, state, now)
        if verdict is None and environment.answer_error is not None:
            verdict = guards.reject_answer(state, environment.answer_error)
        if isinstance(verdict, StopVerdict):
            return _finish(state, verdict)
        if verdict is not None:
            return _ask_again(state, now, verdict.events)
        if state.steer_mode is None and state.turn.reply.stop != "interrupted":
            return Finish(make_completed(state))
    return _call_model(state, now)


def _ask_again(
    state: RunState, now: Instant, events: tuple[EventData, ...]
) -> CallModel | TruncateResults | Compact | Finish:
    """Ask the model for another answer. If it cannot be asked, accept an answer whose only fault is an unverified
    claim."""
    step = _call_model(state, now, events)
    claims = [event.claim for event in events if isinstance(event, PhantomAction)]
    if isinstance(step, Finish) and len(claims) == len(events):
        return Finish(Outcome("completed", state.answer, unverified_claim=claims[0]))
    return step


def _call_model(
    state: RunState, now: Instant, events: tuple[EventData, ...] = ()
) -> CallModel | TruncateResults | Compact | Finish:
    verdict = combine_verdicts(guards.PACE, state, now)
    if isinstance(verdict, StopVerdict):
        return _finish(state, verdict)
    size = estimate_input(state)
    if (step := make_room(state, size)) is not None:
        return step
    if exceeds_window(state, size):
        return Finish(_prefer_claimed_answer(state, make_overflow(state)))
    if verdict is not None:
        events += verdict.events
    must_report = state.guards.recovery.report_due
    for event in events:
        if isinstance(event, RecoveryAction) and event.wants_report:
            must_report = True
    return CallModel(events, tools_offered=not must_report)


def _find_wait(state: RunState, now: Instant) -> RunWaiting | None:
    if state.interrupted is not None:
        return RunWaiting("interrupted", state.interrupted, state.deadline)
    if (
        state.attempts.retry_at is not None
        and _is_in_future(state.attempts.retry_at, state, now)
        and state.steer_mode is None
    ):
        attempt = f"attempt {state.attempts.failures + 1} of the model call"
        if state.deadline is not None and state.deadline < state.attempts.retry_at:
            return RunWaiting("retry", f"the deadline, which comes before {attempt}", state.deadline)
        return RunWaiting(
            "retry", f"{attempt}, at {format_second(state.attempts.retry_at)}", state.attempts.retry_at
        )
    return None


def _is_in_future(moment: Instant, state: RunState, now: Instant) -> bool:
    """Return whether the moment is in the future. If the clock was set back since the last event, it has passed."""
    return state.latest_at - MAX_CLOCK_SKEW_SECONDS <= now < moment


def _plan_calls(state: RunState, now: Instant) -> RunTools | CollectChildren | AgentTold | RunWaiting | Finish:
    if has_final_marker(state):
        return _finish(state, StopVerdict(make_completed(state)))
    plan = plan_calls(state, now)
    return _finish(state, plan) if isinstance(plan, StopVerdict) else plan


def decide_command(state: RunState, command: SessionCommand) -> Compact | RunSessionCommand | Finish:
    """Return the next step of a run that executes a session command. It never waits, since the command can be sent
    again."""
    if state.interrupted is not None:
        return Finish(Outcome("cancelled", reason=state.interrupted))
    if state.command_result is not None:
        return Finish(_make_command_outcome(state.command_result))
    if not isinstance(command, CompactSession):
        return RunSessionCommand(command)
    match state.context.compaction:
        case ContextCompacted(tokens_before=before, tokens_after=after):
            text = f"The conversation is shorter: about {before} tokens before, {after} now. /undo takes it back."
            return _finish_command(CommandObeyed(text))
        case CompactionFailed(reason=reason):
            return _finish_command(
                CommandObeyed(f"No summary could be made, and nothing was changed: {reason}", False)
            )
        case None:
            nothing_to_do = "There is nothing to summarise: too little was said since the conversation last began."
            return plan_compaction(state, "compact", "command") or _finish_command(CommandObeyed(nothing_to_do))


def _finish_command(event: CommandObeyed) -> Finish:
    return Finish(_make_command_outcome(event), (event,))


def _make_command_outcome(obeyed: CommandObeyed) -> Outcome:
    return Outcome("completed", obeyed.said) if obeyed.done else Outcome("failed", "", obeyed.said)


# ── Ends ───────────────────────────────────────────────────────────────────────────────────────────


def _finish(state: RunState, stop: StopVerdict) -> Finish:
    """End the run. Open calls get their result first."""
    unanswered = [make_skipped(call, stop.outcome.reason) for call in state.open_calls]
    return Finish(_prefer_claimed_answer(state, stop.outcome), (*unanswered, *stop.events))


def _prefer_claimed_answer(state: RunState, outcome: Outcome) -> Outcome:
    """Return the answer that was given before a claim was questioned, if the run got no further."""
    if state.guards.claimed_answer is None or outcome.kind not in (
        "empty",
        "refused",
        "max_steps",
        "model_error",
    ):
        return outcome
    answer, claim = state.guards.claimed_answer
    return Outcome("completed", answer, unverified_claim=claim)


def has_final_marker(state: RunState) -> bool:
    marker = state.agent.loop.final_marker
    return marker is not None and state.turn.reply is not None and has_marker(state.turn.answer_so_far, marker)


def make_completed(state: RunState) -> Outcome:
    if is_silence(state.answer):
        return Outcome("silent", "", reason="The agent had nothing to say.")
    if not state.guards.phantom_claims and not has_final_marker(state) and phantom.has_tools(state):
        return Outcome("completed", state.answer)
    answer, claim = phantom.choose_answer(state)
    return Outcome("completed", answer, unverified_claim=claim)


def _plan_after_failure(state: RunState, failure: LlmError) -> TruncateResults | Compact | SwitchModel | Finish:
    """Return the step after a final failure of a model call: a shorter transcript, another model, or the end."""
    if failure.compact and (step := make_room(state, estimate_input(state))) is not None:
        return step
    if failure.filtered:
        return Finish(_prefer_claimed_answer(state, describe_rejection(state, failure)))
    fallback = plan_fallback(state, failure.message, "failed") if failure.next_model else None
    if fallback is not None:
        return SwitchModel(fallback)
    attempts = f" It was tried {state.attempts.failures} times." if state.attempts.failures > 1 else ""
    more = f"{describe_long_wait(state, failure)}{attempts}"
    reason = f"{failure.message.removesuffix('.')}.{more}" if more else failure.message
    if failure.compact and not failure.guessed:
        return Finish(_prefer_claimed_answer(state, make_overflow(state, reason)))
    outcome = Outcome("model_error", state.turn.answer_so_far, reason, _advise_after_failure(state, failure))
    return Finish(_prefer_claimed_answer(state, outcome))


def _advise_after_failure(state: RunState, failure: LlmError) -> str:
    if failure.guessed or state.context.has_guessed_overflow:
        return (
            "If the conversation is too long for the model, send /compact to have it summarised or /reset to go on "
            "with an empty one; otherwise fix the cause, then send its session a message to continue."
        )
    if failure.retryable:
        return "Send its session another message to try again."
    return "Fix that, then send its session another message to continue."
