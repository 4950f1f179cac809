"""The plan for the calls of a reply: which run now, which are refused, and which wait for a reviewer."""

from treadle.core.guards import loop, stuck
from treadle.core.guards.excess_calls import MAKE_FEWER
from treadle.core.guards.quota import max_concurrent_calls
from treadle.core.guards.verdict import BlockCall, StopVerdict
from treadle.core.state import RunState
from treadle.core.steps import CollectChildren, RunTools
from treadle.core.sub_states import RequestedCall
from treadle.core.subagents.supervision import (
    find_collectable,
    find_signal,
    free_child_slots,
    is_delegation,
    wait_for_child,
    wait_for_slot,
)
from treadle.core.tools.conflicts import Batch, plan_as_written
from treadle.core.tools.ledger import Call
from treadle.domain.events import (
    AgentTold,
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    CallErrorCause,
    EventData,
    RunWaiting,
    ToolCallBlocked,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.excerpts import place_excerpt
from treadle.domain.ids import Instant
from treadle.domain.observations import says_all
from treadle.domain.runs import Outcome
from treadle.domain.suggestions import find_closest

STARTED_BUT_UNKNOWN = (
    "outcome unknown: the call was started, and whether it took effect is not known. Check before you do it again."
)
OUTCOME_UNKNOWN = f"Interrupted, {STARTED_BUT_UNKNOWN}"
AFTER_A_DENIAL = "Do not try this call again: go on without it, or say what you need it for."
UNANSWERED = "No answer came in time. Continue as you think best, and state your assumptions."
SUPERSEDED = "A new message arrived before an answer."
CLIENT_MAY_HAVE_RUN_IT = "Whether the client ran the tool is not known. Check before you call it again."


def plan_calls(state: RunState, now: Instant) -> RunTools | CollectChildren | AgentTold | RunWaiting | StopVerdict:
    if (first := find_signal(state, now) or find_collectable(state, now)) is not None:
        return first
    if excess_calls := [call for call in state.turn.calls[state.agent.limits.max_calls :] if call.result is None]:
        return RunTools((), tuple([_refuse_excess(call, state) for call in excess_calls]))
    free = free_child_slots(state)
    run: list[Call] = []
    delivered: list[Call] = []
    batch = Batch(state.tools)
    refuse: list[EventData] = []
    waits: list[RunWaiting] = []
    for call in state.open_calls:
        if (request := state.review.client_calls.get(call.call_id)) is not None and request.result is not None:
            delivered.append(call)
            continue
        if not batch.fits(plan_as_written(call)):
            break  # calls after it are judged when their turn comes
        match _judge_call(state, call, now):
            case StopVerdict() as stop:
                return stop
            case RunWaiting() as wait:
                waits.append(wait)
                batch.add(plan_as_written(call))
            case None if is_delegation(state, call) and free == 0:
                waits.append(wait_for_slot(call))
                batch.add(plan_as_written(call))
            case None:
                free -= is_delegation(state, call)
                run.append(call)
                batch.add(plan_as_written(call))
            case refusal:
                refuse += refusal
    if waits and not (run or refuse or delivered):
        return _combine_waits(waits, state.deadline)
    return RunTools(tuple(run[: max_concurrent_calls(state)]), tuple(refuse), tuple(delivered))  # others come next


def _refuse_excess(call: Call, state: RunState) -> ToolCallError:
    limit, count = state.agent.limits.max_calls, len(state.turn.calls)
    text = f"Not run: a reply may have at most {limit} tool calls, and this one has {count}. {MAKE_FEWER}"
    return ToolCallError(call.call_id, call.name, "too_many", text, limit=limit)


def make_skipped(call: Call, reason: str) -> ToolCallError:
    """Return the result of a call that does not run because the run ends."""
    if call.phase in ("requested", "started", "delegated"):
        return _make_unknown(call)
    return ToolCallError(call.call_id, call.name, "skipped", f"Not run. {reason}")


def _make_unknown(call: Call) -> ToolCallError:
    return ToolCallError(call.call_id, call.name, "interrupted", OUTCOME_UNKNOWN, cause="outcome_unknown")


def _judge_call(
    state: RunState, call: Call, now: Instant
) -> StopVerdict | RunWaiting | tuple[EventData, ...] | None:
    """Return how to stop the run, what to wait for, the events that end the call, or None to let it run."""
    spec = state.tools.get(call.name)
    if spec is None:
        return (ToolCallError(call.call_id, call.name, "unknown_tool", _describe_unknown_tool(state, call.name)),)
    if call.phase == "started":  # its worker died, since no call runs while a decision is made
        if spec.repeatable:
            return None
        return (_make_unknown(call),)
    if (child := state.tree.children.get(call.call_id)) is not None:
        return wait_for_child(state, child)
    if (asked := state.review.client_calls.get(call.call_id)) is not None:  # after its approval, if it needs one
        return _check_client_call(state, call, asked, now)
    if (request := state.review.approvals.get(call.call_id)) is not None:
        return _check_approval(state, call, request, now)
    if call.call_id in state.review.questions:
        return _check_question(state, call, now)
    for judge in (loop.judge_call, stuck.judge_call):
        match judge(state, call):
            case StopVerdict() as stop:
                return stop
            case BlockCall(guard, reason):
                return (ToolCallBlocked(call.call_id, call.name, guard, reason),)
            case None:
                pass
    return None


# ── Approvals and questions ──


def _check_approval(
    state: RunState, call: Call, request: ApprovalRequested, now: Instant
) -> StopVerdict | RunWaiting | tuple[EventData, ...] | None:
    decision = state.review.decisions.get(request.approval_id)
    if decision is None:
        return _check_undecided(state, call, request, now)
    if decision.decision == "approve":
        return None
    note = f" {decision.note}" if decision.note else ""
    return (make_denied(call, f"Denied.{note}", "reviewer"),)


def _check_undecided(
    state: RunState, call: Call, request: ApprovalRequested, now: Instant
) -> StopVerdict | RunWaiting | tuple[EventData, ...]:
    if state.steer_mode == "interrupt":
        decided = ApprovalDecided(request.approval_id, "deny", note=SUPERSEDED, by="treadle", superseded=True)
        return decided, make_denied(call, f"Denied: superseded. {SUPERSEDED}", "superseded")
    if request.expires_at is None or now < request.expires_at:
        detail = f"{request.approval_id}: {request.name} ({request.reason})"
        return RunWaiting("approval", detail, request.expires_at, (request.approval_id,))
    expired = ApprovalExpired(request.approval_id, call.call_id)
    if state.agent.approvals.on_expiry == "deny":
        return expired, make_denied(call, "Denied: no reviewer answered in time.", "expired")
    reason = f"No reviewer decided in time whether `{call.name}` may run ({request.approval_id})."
    outcome = Outcome(
        "approval_expired", state.turn.answer_so_far, reason, "Send its session a message to ask again."
    )
    return StopVerdict(outcome, (expired,))


def _check_question(state: RunState, call: Call, now: Instant) -> RunWaiting | tuple[EventData, ...]:
    question = state.review.questions[call.call_id]
    if (answer := state.review.answers.get(call.call_id)) is not None:
        is_plain = says_all(answer.text, 0, None, truncated=False)
        return (ToolCallEnd(call.call_id, call.name, answer.text, 0, plain=is_plain),)
    if state.steer_mode is not None:
        text = f"Not answered. {SUPERSEDED} Read it."
        return (ToolCallError(call.call_id, call.name, "skipped", text, cause="superseded"),)
    if question.expires_at is not None and now >= question.expires_at:
        return (ToolCallError(call.call_id, call.name, "skipped", UNANSWERED, cause="expired"),)
    return RunWaiting("answer", f"{call.call_id}: {question.question}", question.expires_at, (call.call_id,))


def _check_client_call(
    state: RunState, call: Call, asked: RequestedCall, now: Instant
) -> RunWaiting | tuple[EventData, ...]:
    """Return what to wait for, or the end of a call for which the client has delivered no result."""
    if state.steer_mode is not None:
        text = f"No result. {SUPERSEDED} {CLIENT_MAY_HAVE_RUN_IT}"
        return (ToolCallError(call.call_id, call.name, "skipped", text, cause="superseded"),)
    if asked.expires_at is not None and now >= asked.expires_at:
        text = f"No result: the client did not deliver one in time. {CLIENT_MAY_HAVE_RUN_IT}"
        return (ToolCallError(call.call_id, call.name, "timeout", text, cause="expired"),)
    return RunWaiting("client_tool", f"{call.call_id}: {call.name}", asked.expires_at, (call.call_id,))


def make_denied(call: Call, reason: str, cause: CallErrorCause) -> ToolCallError:
    before = f"`{call.name}` was not run. "
    text, excerpt = f"{before}{reason} {AFTER_A_DENIAL}", place_excerpt(before, reason)
    return ToolCallError(call.call_id, call.name, "denied", text, excerpt=excerpt, cause=cause)


def _combine_waits(waits: list[RunWaiting], deadline: Instant | None) -> RunWaiting:
    """Return one wait for all, until the first of their times or the run's deadline."""
    times = [at for at in (*(wait.wake_at for wait in waits), deadline) if at is not None]
    first = sorted(waits, key=lambda wait: wait.reason == "child")  # reviewers must see what waits for them
    subjects = tuple([subject for wait in first for subject in wait.subjects])
    return RunWaiting(first[0].reason, "; ".join(wait.detail for wait in first), min(times, default=None), subjects)


def _describe_unknown_tool(state: RunState, name: str) -> str:
    known = dict.fromkeys(spec.name for spec in state.tools.values())
    nearest = find_closest(name, known)
    hint = f" Did you mean `{nearest}`?" if nearest else ""
    allowed = ", ".join(f"`{tool}`" for tool in known) or "none"
    return f"There is no tool `{name}`.{hint} Tools you may call: {allowed}."
