"""Supervision of child runs: how many there may be, when a run waits for them, when they are told to stop, and what
their outcome is as the result of a call."""

from treadle.core.state import RunState
from treadle.core.steps import CollectChildren, Finish, RunTools
from treadle.core.subagents.child import Child
from treadle.core.tools.ledger import Call
from treadle.domain.events import AgentEnd, AgentTold, ChildSignal, RunWaiting, ToolCallError
from treadle.domain.ids import Instant
from treadle.domain.lineage import EVALUATOR_ROLES
from treadle.domain.quotas import Shortage
from treadle.ports.tool import Observation

GRACE_SECONDS = 10.0
"""Grace period for child runs that were told to stop, per level of depth."""
SUPERSEDED = "A new message came before it had ended."
NO_MORE = "Do the rest yourself, with the tools that you have."


def is_delegation(state: RunState, call: Call) -> bool:
    spec = state.tools.get(call.name)
    return spec is not None and spec.delegates is not None


def free_child_slots(state: RunState) -> int:
    """Return the number of child runs that may still begin."""
    active = [child for child in state.running_children if child.spawn.role not in EVALUATOR_ROLES]
    return max(0, state.agent.limits.max_children - len(active))


def find_collectable(state: RunState, now: Instant) -> CollectChildren | None:
    """Return the calls whose child runs have ended, or were told to stop and took too long."""
    if not state.tree.children:
        return None
    found = [call for call in state.open_calls if _is_collectable(state, call, now)]
    return CollectChildren(tuple(found)) if found else None


def _is_collectable(state: RunState, call: Call, now: Instant) -> bool:
    child = state.tree.children.get(call.call_id)
    if child is None:
        return False
    if child.end is None and child.signal == "cancel":
        return state.steer_mode == "interrupt" or now >= _give_up_at(state, child)
    return child.end is not None


def find_signal(state: RunState, now: Instant) -> AgentTold | None:
    """Return the signal that child runs need before the run continues, or None.

    Runs whose time is up are cancelled; all are cancelled after an interrupting message; interrupted ones are
    resumed; all get the mode of the session."""
    running = [child for child in state.running_children if child.signal != "cancel"] if state.tree.children else []
    if not running:
        return None
    if state.steer_mode == "interrupt":
        return _make_signal(running, "cancel", SUPERSEDED)
    timed_out = [child for child in running if child.due_at is not None and now >= child.due_at]
    if timed_out:
        return _make_signal(timed_out, "cancel", _describe_timeout(timed_out[0]))
    if (change := pass_on_mode(state)) is not None:
        return change
    paused = [child for child in running if child.signal == "interrupt"]
    return _make_signal(paused, "resume", "") if paused else None


def pass_on_mode(state: RunState) -> AgentTold | None:
    """Return the signal that gives child runs the mode of the session, or None if they have it."""
    mode, running = state.review.mode, state.running_children if state.tree.children else []
    behind = [child for child in running if child.mode != mode and child.spawn.role not in EVALUATOR_ROLES]
    return None if not behind else AgentTold(tuple([child.spawn.call_id for child in behind]), "mode", "", mode)


def wait_for_child(state: RunState, child: Child) -> RunWaiting:
    """Return the wait until a child run ends, is due to be cancelled, or should have stopped."""
    is_cancelled = child.signal == "cancel"
    name = f"{child.spawn.run_id} ({child.spawn.agent})"
    until = _give_up_at(state, child) if is_cancelled else child.due_at
    return RunWaiting("child", name, until, (child.spawn.run_id,))


def wait_for_slot(call: Call) -> RunWaiting:
    """Return the wait of a call that would exceed the number of concurrent child runs."""
    return RunWaiting("child", f"{call.call_id} waits until another has ended", subjects=(call.call_id,))


def interrupt_children(state: RunState) -> AgentTold | None:
    """Return the signal that interrupts the child runs of an interrupted run, or None."""
    running = [child for child in state.running_children if child.signal is None] if state.tree.children else []
    return _make_signal(running, "interrupt", state.interrupted or "") if running else None


def resume_child(child: Child) -> AgentTold | None:
    """Return the signal that resumes an interrupted child run, or None."""
    return _make_signal([child], "resume", "") if child.signal == "interrupt" and child.end is None else None


def stop_children_first(state: RunState, finish: Finish, now: Instant) -> AgentTold | RunWaiting | Finish:
    """Return the end, or what must come before it: child runs are told to stop and get a grace period."""
    running = state.running_children
    if not running:
        return finish
    unsignalled = [child for child in running if child.signal != "cancel"]
    if unsignalled:
        return _make_signal(
            unsignalled, "cancel", state.cancelled or finish.outcome.reason or "The run above it has ended."
        )
    give_up_at = max(_give_up_at(state, child) for child in running)
    if now >= give_up_at:
        return finish
    ids = tuple([child.spawn.run_id for child in running])
    return RunWaiting("child", f"told to stop: {', '.join(ids)}", give_up_at, ids)


def describe_stopped(state: RunState) -> tuple[str, ...]:
    """Return the child runs that were told to stop, with what each of them stopped."""
    found: list[str] = []
    for child in state.tree.children.values():
        if child.signal == "cancel":
            name = f"{child.spawn.run_id} ({child.spawn.agent})"
            found.append(name if child.end is not None else f"{name}, which has not answered yet")
            found += () if child.end is None else child.end.stopped
    return tuple(found)


def _give_up_at(state: RunState, child: Child) -> Instant:
    return child.signalled_at + GRACE_SECONDS * max(1, state.agent.limits.max_depth)


def _describe_timeout(child: Child) -> str:
    return f"It took longer than {(child.spawn.expires_at or 0.0) - child.began_at:.0f} s."


def _make_signal(children: list[Child], what: ChildSignal, reason: str) -> AgentTold:
    return AgentTold(tuple([child.spawn.call_id for child in children]), what, reason)


def fit_into_tree(state: RunState, step: RunTools, short: Shortage) -> RunTools:
    """Return the step without calls that would begin more runs than the tree may have."""
    runs_left = max(0, int(short.ceiling - short.used))
    delegating = [
        call for call in step.run if is_delegation(state, call) and call.call_id not in state.tree.children
    ]
    refused = delegating[runs_left:]
    reason = f"The tree of runs that this one belongs to may have {short.ceiling:g} runs under its root. {NO_MORE}"
    text, limit = f"Nothing was begun. {reason}", short.ceiling
    errors = [
        ToolCallError(call.call_id, call.name, "failed", text, cause="tree_full", limit=limit) for call in refused
    ]
    ids = {call.call_id for call in refused}
    return RunTools(tuple([call for call in step.run if call.call_id not in ids]), (*step.refuse, *errors))


def read_outcome(child: Child) -> tuple[Observation, bool]:
    """Return the outcome of a child run as the result of a call, and whether it timed out."""
    end = child.end
    if end is None:
        return Observation("It was asked to stop and has not ended yet. Its effects are unknown.", None, True), True
    timed_out = child.signal == "cancel" and end.outcome == "cancelled"
    if end.outcome in ("completed", "silent"):
        return Observation(end.text or "(It ended without an answer.)"), False
    return Observation(_describe_failure(end), is_error=True), timed_out


def _describe_failure(end: AgentEnd) -> str:
    so_far = f"\nWhat it had by then:\n{end.text}" if end.text else ""
    return f"{end.agent} did not complete ({end.outcome}): {end.reason}{so_far}"
