"""A run, from top to bottom. Starting is resuming: there is no other path."""

import logging

from msgspec import Struct

from treadle.core.decide import decide, ended
from treadle.core.evaluation import judged_of
from treadle.core.guards.quota import for_calls, judge
from treadle.core.retry import fallback_after
from treadle.core.state import RunState
from treadle.core.steps import (
    CallModel,
    CollectChildren,
    Compact,
    Evaluate,
    Finish,
    NotifyResumed,
    RunSessionCommand,
    RunTools,
    SignalChildren,
    Step,
    SwitchModel,
    TruncateResults,
    Wait,
)
from treadle.core.subagents.waiting import stopped, within_tree
from treadle.domain.errors import Fenced, NotClaimable, StoreError
from treadle.domain.events import EventData, RunEnd, RunRecovered, RunWaiting, StepEnd
from treadle.domain.ids import Instant, RunId
from treadle.domain.messages import Message
from treadle.domain.runs import Outcome
from treadle.engine.deps import EngineDeps
from treadle.engine.isolation import ExecutionSlot
from treadle.engine.memory import recall_memories, save_interaction
from treadle.engine.model_call import call_model, make_intent
from treadle.engine.model_resolution import MissingDependency, has_alternative, resolve_model, switch_model
from treadle.engine.owned_run import OwnedRun, claim_run
from treadle.engine.reshaping import reshape
from treadle.engine.subagents import delegate_calls, manage_children, notify_of_end, notify_of_wait
from treadle.engine.tool_execution import run_tools
from treadle.engine.tool_preparation import prepare_calls
from treadle.ports.journal import Release
from treadle.ports.model import Resolved

logger = logging.getLogger(__name__)

RETRY_AFTER_FAULT_SECONDS = 1.0
"""Seconds before a run is looked at again on which the engine itself has failed."""
WORKER_DIED = "The worker before died or lost its lease."
POLLED_WAITS = ("breaker", "quota", "budget")
"""What a run waits for by looking at it now and then."""


async def advance(run_id: RunId, deps: EngineDeps) -> None:
    """Carry one run as far as it can go now: to its end, or to where it must wait."""
    async with deps.isolation.together() as turn:
        state = await _claim_and_execute(run_id, turn, deps)
    if state is not None and turn.defers(state) and not deps.leaving.is_set():
        async with deps.isolation.alone(run_id, state.suspicion.alone) as turn:
            await _claim_and_execute(run_id, turn, deps)


async def _claim_and_execute(run_id: RunId, turn: ExecutionSlot, deps: EngineDeps) -> RunState | None:
    """Own the run while its turn lasts; return what it has come to, or None if it could not be claimed."""
    try:
        async with claim_run(run_id, deps) as log:
            try:
                await _execute(log, turn, deps)
            except (Fenced, StoreError):
                raise
            except Exception as fault:
                await _record_fault(log, fault, deps)
            return log.state
    except NotClaimable:
        pass  # it is in other hands, it has ended, or its turn has not come
    return None


async def _execute(log: OwnedRun, turn: ExecutionSlot, deps: EngineDeps) -> None:
    if log.death is not None:
        log.record(RunRecovered(log.epoch, WORKER_DIED, log.death.alone, log.death.lately))
        await log.flush()
    model = await resolve_model(log, deps)
    while turn.goes_on(log.state) and not deps.leaving.is_set():  # if it is left here, it is due again at once
        end_step(log, deps)
        match apply_availability(
            apply_refusal(decide(log.state, deps.clock.now()), log, deps), model, log.state, deps
        ):
            case CallModel(notes, tools_offered):
                assert isinstance(model, Resolved)
                try:
                    told = (*notes, *await recall_memories(log.state, deps))
                    intent = make_intent(log.state, model.profile, told, tools_offered, deps.clock.now())
                    if await log.intend(*intent.events, reserve=intent.reserve):
                        await call_model(model, tools_offered, log, deps)
                finally:
                    model.breaker.abandon(log.origin.run_id)  # if it has not got to its end
            case TruncateResults() | Compact() | RunSessionCommand() as change:
                await reshape(change, model, log, deps)
            case SwitchModel(event):
                log.record(event)
                model = await switch_model(log, deps)
            case UseAlternative():
                model = await switch_model(log, deps)
            case RunTools() as calls:
                await execute_tools(calls, log, deps)
            case CollectChildren() | SignalChildren() | NotifyResumed() | Evaluate() as task:
                await manage_children(task, log, deps)
            case Wait() as wait:
                news = wait_events(wait, log.state)
                told = notify_of_wait(wait, bool(news), log)
                if await log.release(Release(wait.reason, wait.wake_at), *news, tell=told):
                    return
            case Finish() as last:
                if await finish_run(last, log, deps):
                    return


async def execute_tools(step: RunTools, log: OwnedRun, deps: EngineDeps) -> None:
    """Run the calls that may run, and begin the runs that some of them leave their work to."""
    cleared, refused = await prepare_calls(step.run, log, deps)
    work = await delegate_calls(cleared, log, deps)
    reserve = for_calls(log.state, len(work.here), len(work.runs))
    if await log.intend(*step.refuse, *refused, *work.events, reserve=reserve, begin=work.runs):
        await run_tools(work.here, log, deps)


async def finish_run(step: Finish, log: OwnedRun, deps: EngineDeps) -> bool:
    """End the run, unless something was delivered meanwhile; whether it has ended."""
    outcome, events = step.outcome, step.events
    last = log.state_after(*events)
    kept = await save_interaction(outcome, last, deps)
    end = make_run_end(outcome, last, deps.clock.now())
    release = Release(said=select_transcript(outcome, last), whole=last.revised)
    return await log.release(release, *events, *kept, end, tell=notify_of_end(end, log))


def end_step(log: OwnedRun, deps: EngineDeps) -> None:
    """A step is over when the model has replied and every call it asked for has its result."""
    step, state = log.state.step, log.state
    if step.open and state.reply is not None and not state.open_calls:
        duration_ms = max(0, round((deps.clock.now() - step.began_at) * 1000))
        log.record(
            StepEnd(step.number, step.attempts, step.calls, step.input_tokens, step.output_tokens, duration_ms)
        )


def apply_refusal(step: Step, log: OwnedRun, deps: EngineDeps) -> Step:
    """The step; or what becomes of the run where an account did not have what the step wants."""
    if log.refused is None or not isinstance(step, CallModel | RunTools | Compact):
        return step
    if log.refused.kind == "runs":
        return within_tree(log.state, step, log.refused) if isinstance(step, RunTools) else step
    becomes, now = judge(log.state, log.refused, deps.clock.now()), deps.clock.now()
    return ended(log.state, becomes, now) if isinstance(becomes, Finish) else becomes


class UseAlternative(Struct, frozen=True):
    """The model is left alone, and another that goes by the same name is well."""


def apply_availability(
    step: Step, model: Resolved | MissingDependency, state: RunState, deps: EngineDeps
) -> Step | UseAlternative:
    """The step; or a wait where what it takes is missing; or another model where this one is left alone."""
    if isinstance(model, MissingDependency) and state.command is not None and isinstance(step, Compact):
        return Finish(Outcome("failed", reason=model.what))
    if isinstance(model, MissingDependency):
        return (
            Wait("unavailable", model.what, state.deadline)
            if isinstance(step, CallModel | RunTools | Compact)
            else step
        )
    if isinstance(step, CallModel) and (seconds := _seconds_until_allowed(model, state, deps)) is not None:
        if has_alternative(model, state, deps):
            return UseAlternative()
        failing = f"{model.provider}/{model.model} fails too often and is left alone for {seconds:.0f} s"
        following = fallback_after(state, failing)
        if following:
            return SwitchModel(following)
        wake_at = deps.clock.now() + seconds
        return Wait("breaker", failing, wake_at if state.deadline is None else min(wake_at, state.deadline))
    return step


def _seconds_until_allowed(model: Resolved, state: RunState, deps: EngineDeps) -> float | None:
    return model.breaker.wait(deps.clock.monotonic(), state.origin.run_id)


def wait_events(wait: Wait, state: RunState) -> tuple[EventData, ...]:
    """What is put on record of a wait. Looking at a run that still waits for the same says nothing new."""
    event = RunWaiting(wait.reason, wait.detail, wait.wake_at)
    known = state.waiting is not None and wait.reason == state.waiting.reason and wait.reason in POLLED_WAITS
    return () if known or event == state.waiting else (event,)


def select_transcript(outcome: Outcome, state: RunState) -> tuple[Message, ...]:
    """What the run adds to the conversation of its session. A schedule that asked, and was told nothing, is left
    out: else the conversation would fill up with that."""
    left_out = outcome.kind == "silent" and state.by_the_clock and not state.revised
    return () if left_out else state.said


def make_run_end(outcome: Outcome, state: RunState, now: Instant) -> RunEnd:
    model_stopped = state.cancelled is not None and state.reply is not None and state.reply.stop == "interrupted"
    return RunEnd(
        outcome.status,
        outcome.kind,
        state.metrics(now),
        outcome.text,
        outcome.reason,
        outcome.next,
        (*state.stopped, *(("the model call",) if model_stopped else ()), *stopped(state)),
        outcome.unverified_claim,
        *judged_of(state),
        silent=outcome.kind == "silent",
    )


async def _record_fault(log: OwnedRun, fault: Exception, deps: EngineDeps) -> None:
    """The engine itself failed. Count it like a death, so that a run that always fails is set aside."""
    logger.exception("run %s: the engine failed; it is taken up again", log.origin.run_id)
    log.record(RunRecovered(log.epoch, f"The engine failed: {type(fault).__name__}: {fault}"))
    await log.release(Release(wake_at=deps.clock.now() + RETRY_AFTER_FAULT_SECONDS))
