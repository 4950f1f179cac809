"""A run, from top to bottom. Starting is resuming: there is no other path."""

import logging

from msgspec import Struct

from treadle.core.decide import CallModel, Finish, RunTools, Step, Wait, decide
from treadle.core.state import RunState
from treadle.domain.errors import Fenced, NotClaimable, StoreError, UsageError
from treadle.domain.events import (
    EventData,
    ModelResolved,
    RunEnd,
    RunRecovered,
    RunStart,
    RunWaiting,
    StepEnd,
)
from treadle.domain.identity import Instant, RunId
from treadle.domain.runs import Outcome
from treadle.engine.calling import asked, call_model
from treadle.engine.deps import Deps
from treadle.engine.ownership import Log, own
from treadle.engine.tooling import prepare, run_tools
from treadle.ports.journal import Release
from treadle.ports.model import Model

logger = logging.getLogger(__name__)

PAUSE_AFTER_A_FAULT = 1.0
"""Seconds before a run is looked at again on which the engine itself has failed."""


async def advance(run_id: RunId, deps: Deps) -> None:
    """Carry one run as far as it can go now: to its end, or to where it must wait."""
    try:
        async with own(run_id, deps) as log:
            try:
                await _carry(log, deps)
            except (Fenced, StoreError):
                raise
            except Exception as fault:
                await _survive(log, fault, deps)
    except NotClaimable:
        pass  # it is in other hands, it has ended, or its turn has not come


async def _carry(log: Log, deps: Deps) -> None:
    if log.recovering:
        log.record(RunRecovered(log.epoch, "The worker before died or lost its lease."))
        await log.flush()
    client = begin(log, deps)
    while True:
        end_step(log, deps)
        match possible(decide(log.state, deps.clock.now()), client, log.state):
            case CallModel(notes, tools_offered):
                assert not isinstance(client, Missing)
                if await log.intend(*asked(log.state, notes, tools_offered)):
                    await call_model(client, tools_offered, log, deps)
            case RunTools(calls, refusals):
                ready, refused = prepare(calls, log, deps)
                if await log.intend(*refusals, *refused, *(item.start for item in ready)):
                    await run_tools(ready, log, deps)
            case Wait() as wait:
                if await log.release(Release(wait.reason, wait.wake_at), *waiting(wait, log.state)):
                    return
            case Finish(outcome, events):
                log.record(*events)
                end = ending(outcome, log.state, deps.clock.now())
                if await log.release(Release(said=log.state.said), end):
                    return


class Missing(Struct, frozen=True):
    """Something that the run needs and this engine does not have."""

    what: str


def begin(log: Log, deps: Deps) -> Model | Missing:
    """Find the model that answers and, the first time, the tools that may be called."""
    if log.state.cancelled is not None:
        return Missing("nothing: it is cancelled")
    try:
        return _begin(log, deps)
    except UsageError as error:
        return Missing(str(error))


def _begin(log: Log, deps: Deps) -> Model:
    state = log.state
    found = deps.models.resolve(state.agent.model, state.agent.provider)
    if not state.started:
        tools = deps.tools.select(state.agent.tools)
        log.record(RunStart(tuple(tool.spec for tool in tools)))
    else:
        for name in state.tools:
            if deps.tools.find(name) is None:
                raise UsageError(f"The run needs the tool `{name}`, which this engine does not have. Add it.")
    if state.model is None or (state.model.provider, state.model.model) != (found.provider, found.model):
        log.record(ModelResolved(found.provider, found.model, found.api_mode, found.reason))
    return found.client


def end_step(log: Log, deps: Deps) -> None:
    """A step is over when the model has replied and every call it asked for has its result."""
    step, state = log.state.step, log.state
    if step.open and state.reply is not None and not state.open_calls:
        duration_ms = max(0, round((deps.clock.now() - step.began_at) * 1000))
        log.record(
            StepEnd(step.number, step.attempts, step.calls, step.input_tokens, step.output_tokens, duration_ms)
        )


def possible(step: Step, client: Model | Missing, state: RunState) -> Step:
    """The step, or a wait where what it takes is missing."""
    if isinstance(client, Missing) and isinstance(step, CallModel | RunTools):
        return Wait("unavailable", client.what, state.deadline)
    return step


def waiting(wait: Wait, state: RunState) -> tuple[EventData, ...]:
    """What is put on record of a wait. Looking at a run that still waits for the same says nothing new."""
    event = RunWaiting(wait.reason, wait.detail, wait.wake_at)
    return () if event == state.waiting else (event,)


def ending(outcome: Outcome, state: RunState, now: Instant) -> RunEnd:
    model_stopped = state.cancelled is not None and state.reply is not None and state.reply.stop == "interrupted"
    return RunEnd(
        outcome.status,
        outcome.kind,
        state.metrics(now),
        outcome.text,
        outcome.reason,
        outcome.next,
        (*state.stopped, *(("the model call",) if model_stopped else ())),
    )


async def _survive(log: Log, fault: Exception, deps: Deps) -> None:
    """The engine itself failed. Count it like a death, so that a run that always fails is set aside."""
    logger.exception("run %s: the engine failed; it is taken up again", log.origin.run_id)
    log.record(RunRecovered(log.epoch, f"The engine failed: {type(fault).__name__}: {fault}"))
    await log.release(Release(wake_at=deps.clock.now() + PAUSE_AFTER_A_FAULT))
