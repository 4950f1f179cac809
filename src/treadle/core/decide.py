"""What a run does next, given all that has happened to it. Pure: the same state and time give the same step."""

from difflib import get_close_matches

from msgspec import Struct

from treadle.core import guards
from treadle.core.fold import SILENT_TEXTS
from treadle.core.guards import loop, stuck
from treadle.core.guards.verdict import Block, Stop, strictest
from treadle.core.ledger import Call
from treadle.core.retry import fallback_after
from treadle.core.state import RunState
from treadle.domain.events import (
    EventData,
    LlmError,
    LlmFallback,
    RecoveryAction,
    ToolCallBlocked,
    ToolCallError,
    WaitReason,
)
from treadle.domain.identity import Instant
from treadle.domain.runs import Outcome

OUTCOME_UNKNOWN = (
    "Interrupted, outcome unknown: the call was started, and whether it took effect is not known. "
    "Check before you do it again."
)


class CallModel(Struct, frozen=True, gc=False):
    """Ask the model. `events` are what the guards had to say, which goes with the request."""

    events: tuple[EventData, ...] = ()
    tools_offered: bool = True


class RunTools(Struct, frozen=True):
    """Run these calls side by side; the others are refused with the results given here."""

    run: tuple[Call, ...]
    refuse: tuple[EventData, ...]


class Wait(Struct, frozen=True):
    """Let go of the run until something is delivered, or until `wake_at`."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None


class FallBack(Struct, frozen=True):
    """Let the next of the agent's fallbacks take over."""

    event: LlmFallback


class Finish(Struct, frozen=True):
    outcome: Outcome
    events: tuple[EventData, ...] = ()


Step = CallModel | RunTools | FallBack | Wait | Finish


def decide(state: RunState, now: Instant) -> Step:
    """The next step of a run that has started and not ended."""
    stop = strictest(guards.ALWAYS, state, now)
    if isinstance(stop, Stop):
        return _finish(state, stop)
    if state.open_calls and state.interrupted is None:
        return _plan_calls(state)
    if wait := _must_wait(state, now):
        return wait
    if state.failure is not None:
        return _after_failure(state, state.failure)
    if state.reply is not None and not state.calls:
        verdict = strictest(guards.ANSWER, state, now)
        if isinstance(verdict, Stop):
            return _finish(state, verdict)
        if verdict is not None:
            return _call_model(state, now, verdict.events)
        if state.steered is None and state.reply.stop != "interrupted":
            return Finish(completed(state))
    return _call_model(state, now)


def _call_model(state: RunState, now: Instant, events: tuple[EventData, ...] = ()) -> CallModel | Finish:
    verdict = strictest(guards.PACE, state, now)
    if isinstance(verdict, Stop):
        return _finish(state, verdict)
    if verdict is not None:
        events += verdict.events
    must_report = state.recovery.report_due
    for event in events:
        if isinstance(event, RecoveryAction) and event.stage == "report":
            must_report = True
    return CallModel(events, tools_offered=not must_report)


def _must_wait(state: RunState, now: Instant) -> Wait | None:
    if state.interrupted is not None:
        return Wait("interrupted", state.interrupted, state.deadline)
    if state.retry_at is not None and now < state.retry_at and state.steered is None:
        wake_at = state.retry_at if state.deadline is None else min(state.retry_at, state.deadline)
        return Wait("retry", f"attempt {state.failures + 1} of the model call", wake_at)
    return None


# ── Calls ──────────────────────────────────────────────────────────────────────────────────────────


def _plan_calls(state: RunState) -> RunTools | Finish:
    """Which of the open calls run now, side by side, and which are refused."""
    if marked_final(state):
        return _finish(state, Stop(completed(state)))
    run: list[Call] = []
    refuse: list[EventData] = []
    for call in state.open_calls:
        if not _fits(state, call, run):
            break  # and what stands behind it is judged when its turn has come
        match _judge(state, call):
            case Stop() as stop:
                return _finish(state, stop)
            case None:
                run.append(call)
            case refusal:
                refuse.append(refusal)
    return RunTools(tuple(run), tuple(refuse))


def _fits(state: RunState, call: Call, batch: list[Call]) -> bool:
    """Whether a call may start beside those of the batch. A call that is not concurrent is a barrier."""
    if not batch:
        return True
    spec = state.tools.get(call.name)
    return state.tools[batch[-1].name].concurrent and (spec is None or spec.concurrent)


def _judge(state: RunState, call: Call) -> Stop | EventData | None:
    """Stop the run, refuse the call with this result, or let it run."""
    spec = state.tools.get(call.name)
    if spec is None:
        return ToolCallError(call.call_id, call.name, "unknown_tool", _unknown_tool(state, call.name))
    if call.phase == "started":  # and nothing runs while a decision is made: its worker died
        if spec.repeatable:
            return None
        return ToolCallError(call.call_id, call.name, "interrupted", OUTCOME_UNKNOWN)
    for judge in (loop.judge_call, stuck.judge_call):
        match judge(state, call):
            case Stop() as stop:
                return stop
            case Block(guard, reason):
                return ToolCallBlocked(call.call_id, call.name, guard, reason)
            case None:
                pass
    return None


def _skipped(call: Call, reason: str) -> ToolCallError:
    if call.phase == "started":
        return ToolCallError(call.call_id, call.name, "interrupted", OUTCOME_UNKNOWN)
    return ToolCallError(call.call_id, call.name, "skipped", f"Not run. {reason}")


def _unknown_tool(state: RunState, name: str) -> str:
    nearest = get_close_matches(name, state.tools, n=1)
    hint = f" Did you mean `{nearest[0]}`?" if nearest else ""
    allowed = ", ".join(f"`{tool}`" for tool in state.tools) or "none"
    return f"There is no tool `{name}`.{hint} Tools you may call: {allowed}."


# ── Ends ───────────────────────────────────────────────────────────────────────────────────────────


def _finish(state: RunState, stop: Stop) -> Finish:
    """End the run; calls that are still open get their one result first."""
    skipped = tuple(_skipped(call, stop.outcome.reason) for call in state.open_calls)
    return Finish(stop.outcome, (*skipped, *stop.events))


def marked_final(state: RunState) -> bool:
    marker = state.agent.loop.final_marker
    return marker is not None and state.reply is not None and marker in state.answer_so_far


def completed(state: RunState) -> Outcome:
    if state.answer.strip() in SILENT_TEXTS:
        return Outcome("silent", "", reason="The agent had nothing to say.")
    return Outcome("completed", state.answer)


def _after_failure(state: RunState, failure: LlmError) -> FallBack | Finish:
    """A model call has failed for good: another model, or the end."""
    following = fallback_after(state, failure.message) if failure.next_model else None
    if following is not None:
        return FallBack(following)
    attempts = f" ({state.failures} attempts)" if state.failures > 1 else ""
    return Finish(
        Outcome(
            "context_overflow" if failure.compact else "model_error",
            state.answer_so_far,
            reason=f"{failure.message}{attempts}",
            next="Mend that, then send its session a message to go on from here.",
        )
    )
