"""The run loop, from claim to end. Starting a run and resuming one follow the same path."""

import logging

from msgspec.structs import replace

from treadle.core.decide import decide
from treadle.core.environment import Environment, OpenBreaker
from treadle.core.evaluation import summarise_verdicts
from treadle.core.guards.quota import reserve_calls
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
    Step,
    SwitchModel,
    TruncateResults,
    UseAlternative,
)
from treadle.core.subagents.supervision import describe_stopped
from treadle.core.suspicion import make_suspect
from treadle.domain.errors import Fenced, NotClaimable, StoreError
from treadle.domain.events import (
    AgentTold,
    ClientCallRequested,
    RunEnd,
    RunRecovered,
    RunWaiting,
    StepEnd,
    TrialStarted,
)
from treadle.domain.ids import Instant, RunId
from treadle.domain.messages import Message
from treadle.domain.runs import Outcome
from treadle.engine.client_wait import linger
from treadle.engine.compaction import compact, truncate_results
from treadle.engine.deps import EngineDeps, SessionDeps
from treadle.engine.file_watch import prepare_files
from treadle.engine.isolation import ExecutionSlot
from treadle.engine.memory import recall_memories, save_interaction
from treadle.engine.model_call import call_model, make_intent
from treadle.engine.model_resolution import MissingDependency, has_alternative, resolve_model, switch_model
from treadle.engine.owned_run import OwnedRun, claim_run
from treadle.engine.program import HostProgram
from treadle.engine.session_commands import run_session_command
from treadle.engine.subagents import delegate_calls, manage_children, notify_of_end, notify_of_wait
from treadle.engine.tool_execution import run_tools
from treadle.engine.tool_preparation import prepare_calls
from treadle.engine.tool_results import finish_client_calls
from treadle.engine.waits import make_wait_events
from treadle.ports.journal import Release
from treadle.ports.model import Resolved

logger = logging.getLogger(__name__)

RETRY_AFTER_FAULT_SECONDS = 1.0
WORKER_DIED = "The previous worker died or lost its lease."


async def advance(run_id: RunId, deps: EngineDeps) -> None:
    """Execute a run until it ends or has to wait. Do nothing if it cannot be claimed."""
    async with deps.isolation.share() as slot:
        state = await _claim_and_execute(run_id, slot, deps)
    if state is not None and slot.needs_trial(state) and not deps.stopping.is_set():
        async with deps.isolation.join_trial(make_suspect(run_id, state.guards.suspicion), deps.worker.ids) as slot:
            await _claim_and_execute(run_id, slot, deps)


async def _claim_and_execute(run_id: RunId, slot: ExecutionSlot, deps: EngineDeps) -> RunState | None:
    """Return the state that the run reached, or None if it could not be claimed."""
    try:
        async with claim_run(run_id, deps.worker) as run:
            try:
                await _execute(run, slot, deps)
            except (Fenced, StoreError):
                raise
            except Exception as fault:
                await _record_fault(run, fault)
            return run.state
    except NotClaimable:
        pass  # another worker owns it, it has ended, or it is not due
    return None


async def _execute(run: OwnedRun, slot: ExecutionSlot, deps: EngineDeps) -> None:
    await record_recovery(run, slot.trial)
    model = await find_missing_deps(run, deps.tools.program) or await resolve_model(run, deps.models)
    prepare_files(run, deps.tools)
    deps.tools.program.note_lack(run.origin.run_id, is_lacking=isinstance(model, MissingDependency))
    while slot.may_continue(run.state) and not deps.stopping.is_set():  # a run that is left here is due at once
        end_step(run)
        match next_step(run, model, deps):
            case CallModel() as call:
                await request_reply(call, model, run, deps.session)
            case RunTools() as calls:
                await execute_tools(calls, run, deps)
            case TruncateResults() as truncation:
                await truncate_results(truncation, run, deps.session.results)
            case Compact() as compaction:
                await compact(compaction, _require_model(model), run, deps.session)
            case RunSessionCommand() as command:
                await run_session_command(command, run, deps.session)
            case SwitchModel(event):
                run.record(event)
                model = await switch_model(run, deps.models)
            case UseAlternative():
                model = await switch_model(run, deps.models)
            case CollectChildren() | AgentTold() | NotifyResumed() | Evaluate() as task:
                await manage_children(task, run, deps.children, deps.tools)
            case RunWaiting() as wait:
                if not await linger(wait, run, deps.stopping) and await release_until_woken(wait, run):
                    return
            case Finish() as last:
                if await finish_run(last, run, deps.session):
                    return


async def find_missing_deps(run: OwnedRun, program: HostProgram) -> MissingDependency | None:
    """Return what the program must provide to the run and does not, or None."""
    queued = run.state.tree.queued
    if queued is None or run.state.cancelled is not None:
        return None
    missing = await program.prepare(run.origin, queued)
    return None if missing is None else MissingDependency(missing)


async def record_recovery(run: OwnedRun, trial: TrialStarted | None) -> None:
    """Record that the previous worker died, if it did, and the trial that a suspect is a member of."""
    if run.death is not None:
        run.record(RunRecovered(run.epoch, WORKER_DIED, run.death.alone, run.death.lately, "worker_died"))
    if trial is not None and run.state.guards.suspicion.is_suspect:
        run.record(trial)
    await run.flush()


def next_step(run: OwnedRun, model: Resolved | MissingDependency, deps: EngineDeps) -> Step:
    """Return what to do next. The model's breaker is asked last, because an open one admits a single probe."""
    missing = model.what if isinstance(model, MissingDependency) else None
    clock, answer_error = run.worker.clock, _find_answer_error(run, deps)
    environment = Environment(clock.now(), run.refused, missing, answer_error=answer_error)
    step = decide(run.state, environment)
    if isinstance(step, CallModel) and isinstance(model, Resolved):
        seconds = model.breaker.wait(clock.monotonic(), run.origin.run_id)
        if seconds is not None:
            name, alternative = f"{model.provider}/{model.model}", has_alternative(model, run.state, deps.models)
            return decide(run.state, replace(environment, breaker=OpenBreaker(name, seconds, alternative)))
    return step


def _find_answer_error(run: OwnedRun, deps: EngineDeps) -> str | None:
    """Return why the program's type refuses the answer, or None."""
    turn, schema = run.state.turn, run.state.agent.output
    if schema is None or turn.reply is None or turn.calls or turn.reply.stop in ("interrupted", "max_tokens"):
        return None
    return deps.find_answer_error(schema, run.state.answer)


async def request_reply(
    step: CallModel, model: Resolved | MissingDependency, run: OwnedRun, deps: SessionDeps
) -> None:
    """Commit the intent to call the model, then call it. Do nothing if the intent is not accepted."""
    model = _require_model(model)
    try:
        notes = (*step.events, *await recall_memories(run.state, deps.memories))
        intent = make_intent(run.state, model.profile, notes, step.tools_offered, run.worker.clock.now())
        if await run.intend(*intent.events, reserve=intent.reserve):
            await call_model(model, step.tools_offered, run)
    finally:
        model.breaker.abandon(run.origin.run_id)  # has no effect if the call completed


def _require_model(model: Resolved | MissingDependency) -> Resolved:
    assert isinstance(model, Resolved), "a step that needs a model waits while there is none"
    return model


async def execute_tools(step: RunTools, run: OwnedRun, deps: EngineDeps) -> None:
    """Run the calls that may run here, begin the child runs that other calls delegate to, and end those for which
    the client has delivered results."""
    if step.delivered:
        run.record(*await finish_client_calls(step.delivered, run, deps.tools))
        if not step.run:
            return  # refusals are decided again
    ready, refused = await prepare_calls(step.run, run, deps.tools)
    work = await delegate_calls(ready, run, deps.children)
    if any(isinstance(event, ClientCallRequested) for event in refused):
        run.record(*refused)  # committed with the wait for them
        refused = []
        if not (ready or step.refuse):
            return
    reserve = reserve_calls(run.state, len(work.local_calls), len(work.runs))
    if await run.intend(*step.refuse, *refused, *work.events, reserve=reserve, begin=work.runs):
        await run_tools(work.local_calls, run, deps.tools)


async def release_until_woken(wait: RunWaiting, run: OwnedRun) -> bool:
    """Release the run and return True, unless something was delivered to it meanwhile."""
    events = make_wait_events(wait, run.state)
    notices = notify_of_wait(wait, bool(events), run)
    return await run.release(Release(wait.reason, wait.wake_at), *events, tell=notices)


async def finish_run(step: Finish, run: OwnedRun, deps: SessionDeps) -> bool:
    """End the run and return True, unless something was delivered to it meanwhile."""
    outcome = step.outcome
    last = run.preview(*step.events)
    saved = await save_interaction(outcome, last, deps.memories, run.worker.ids)
    end = make_run_end(outcome, last, run.worker.clock.now())
    release = Release(said=select_transcript(outcome, last), whole=last.context.is_rewritten)
    return await run.release(release, *step.events, *saved, end, tell=notify_of_end(end, run))


def end_step(run: OwnedRun) -> None:
    """Record the end of the step if the model has replied and every tool call has its result."""
    step, state = run.state.step, run.state
    if step.is_open and state.turn.reply is not None and not state.open_calls:
        duration_ms = max(0, round((run.worker.clock.now() - step.began_at) * 1000))
        run.record(
            StepEnd(
                step=step.number,
                attempts=step.attempts,
                calls=step.calls,
                input_tokens=step.input_tokens,
                output_tokens=step.output_tokens,
                duration_ms=duration_ms,
            )
        )


def select_transcript(outcome: Outcome, state: RunState) -> tuple[Message, ...]:
    """Return the messages that the run adds to its session.

    A scheduled run with a silent outcome adds none, so that such runs do not fill up the transcript."""
    is_left_out = outcome.kind == "silent" and state.is_scheduled and not state.context.is_rewritten
    return () if is_left_out else state.own_messages


def make_run_end(outcome: Outcome, state: RunState, now: Instant) -> RunEnd:
    model_stopped = (
        state.cancelled is not None and state.turn.reply is not None and state.turn.reply.stop == "interrupted"
    )
    return RunEnd(
        outcome.status,
        outcome.kind,
        state.metrics(now),
        outcome.text,
        outcome.reason,
        outcome.next,
        (*state.stopped, *(("the model call",) if model_stopped else ()), *describe_stopped(state)),
        outcome.unverified_claim,
        *summarise_verdicts(state),
        silent=outcome.kind == "silent",
        shortage=outcome.shortage,
        mismatch=outcome.mismatch,
    )


async def _record_fault(run: OwnedRun, fault: Exception) -> None:
    """Count a failure of the engine like the death of a worker, so that a run that always fails is quarantined."""
    logger.exception("run %s: the engine failed; the run is resumed shortly", run.origin.run_id)
    reason = f"The engine failed: {type(fault).__name__}: {fault}"
    run.record(RunRecovered(run.epoch, reason, cause="engine_failed"))
    await run.release(Release(wake_at=run.worker.clock.now() + RETRY_AFTER_FAULT_SECONDS))
