"""Invariants of every journal, whatever happened to its processes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.context.transcript import repair
from treadle.core.fold import fold_all
from treadle.core.state import RunState, new_state
from treadle.domain.envelope import Event, Origin, decode_data
from treadle.domain.events import (
    AgentSpawn,
    ApprovalDecided,
    ApprovalRequested,
    ClientCallRequested,
    ContextCompacted,
    LlmError,
    LlmResponse,
    RunEnd,
    StuckDetected,
    ToolCallBlocked,
    ToolCallEnd,
    ToolCallError,
    ToolCallStart,
)
from treadle.domain.ids import RunId
from treadle.domain.messages import Message, ToolUse
from treadle.testing.simulation.accounts import check_spending
from treadle.testing.simulation.children import check_families
from treadle.testing.simulation.clients import Delivery, check_client_calls, check_deliveries
from treadle.testing.simulation.world import Violation, World

REPEATABLE = ("look",)
POSSIBLE = ("completed", "cancelled", "model_error")


def check_journals(
    world: World,
    steered: list[tuple[RunId, str]],
    cancelled: set[RunId],
    deliveries: Sequence[Delivery],
    sole: bool,
) -> tuple[str, ...]:
    """Check everything. Return how the runs ended."""
    if world.violations:
        raise Violation(world.violations[0])
    runs = world.disk.execute("SELECT id, run_id, session_id, agent_id FROM runs ORDER BY id").fetchall()
    history: dict[str, tuple[Message, ...]] = {}
    outcomes: list[str] = []
    conversation: dict[RunId, tuple[Message, ...]] = {}
    folded: set[RunId] = set()
    journals: list[list[Event]] = []
    for id_, run_id, session_id, agent_id in runs:
        origin = Origin(run_id, session_id, agent_id)
        events = _events(world, id_, origin)
        journals.append(events)
        before = history.get(session_id, ())
        check_sequence(run_id, events)
        check_calls(run_id, events)
        check_effects(world, events, sole)
        check_approvals(run_id, events)
        check_client_calls(run_id, events)
        state = check_fold(origin, events, before)
        check_conversation(world, id_, state)
        history[session_id] = state.own_messages if state.context.is_rewritten else (*before, *state.own_messages)
        conversation[run_id] = state.own_messages
        if any(isinstance(event.data, ContextCompacted) for event in events):
            folded.add(run_id)
        outcomes.append(str(state.outcome))
        possible = (*possible_outcomes(state), "stuck") if has_failing_tool(events) else possible_outcomes(state)
        if state.outcome not in possible and (sole or state.outcome != "quarantined"):
            raise Violation(f"{run_id} ended {state.outcome}, which the scenario cannot cause")
        if run_id in cancelled and state.outcome != "cancelled":
            raise Violation(f"{run_id}: a cancel was acknowledged and the run ended {state.outcome}")
    check_session_order(world)
    check_spending(world, journals)
    check_families(world, journals)
    check_deliveries(deliveries, journals)
    for run_id, text in steered:
        found = sum(message.text.count(text) for message in conversation[run_id])
        if found != 1 and (run_id not in folded or not found):  # a summary may repeat a text
            raise Violation(f"{run_id}: `{text}` was acknowledged and is {found} times in the conversation")
    return tuple(outcomes)


def possible_outcomes(state: RunState) -> tuple[str, ...]:
    """Return the outcomes that the scenario can cause."""
    found = POSSIBLE if state.command is None else (*POSSIBLE, "failed")
    if state.agent.limits.context_window is not None:
        found = (*found, "context_overflow")
    if state.accounts:
        found = (*found, "budget_exhausted", "quota_exceeded")
    if any(tree.steps is not None for tree in state.tree.ceilings):
        found = (*found, "max_steps")
    if state.agent.approvals.on_expiry == "end":
        found = (*found, "approval_expired")
    if state.agent.limits.deadline is not None:
        found = (*found, "deadline")
    return found if state.lineage is None else (*found, "stuck")  # it may have few tools


def has_failing_tool(events: list[Event]) -> bool:
    """Return whether a tool failed as often in a row as the guard says: `agent_spawn` does in a full tree."""
    failures: Counter[str] = Counter()
    for event in events:
        match event.data:
            case ToolCallError(name=name):
                failures[name] += 1
            case ToolCallEnd(name=name):
                failures[name] = 0
            case StuckDetected(kind="failing_tool", tool=str(tool), count=count) if failures[tool] >= count:
                return True
            case _:
                pass
    return False


def _events(world: World, id_: int, origin: Origin) -> list[Event]:
    rows: Any = world.disk.execute(
        "SELECT event_id, timestamp, sequence, type, version, data FROM events WHERE run = ? ORDER BY sequence",
        (id_,),
    )
    return [
        Event(
            event_id=event_id,
            timestamp=timestamp,
            origin=origin,
            sequence=sequence,
            type=type_,
            data=decode_data(type_, raw, version),
            raw=raw,
            version=version,
        )
        for event_id, timestamp, sequence, type_, version, raw in rows
    ]


def check_sequence(run_id: RunId, events: list[Event]) -> None:
    """Check that sequence numbers start at 1 without gaps, and that there is one end with nothing after it."""
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        raise Violation(f"{run_id}: the sequence has gaps: {[event.sequence for event in events]}")
    ends = [event.sequence for event in events if isinstance(event.data, RunEnd)]
    if ends != [len(events)]:
        raise Violation(f"{run_id}: ends at {ends} of {len(events)}")


def check_calls(run_id: RunId, events: list[Event]) -> None:
    """Check that every call has exactly one result, and that no result lacks a call."""
    asked: list[str] = []
    results: Counter[str] = Counter()
    for event in events:
        match event.data:
            case LlmError(kind="adapter"):
                raise Violation(f"{run_id}: {event.data.message}")
            case LlmResponse(parts=parts):
                asked += [part.call_id for part in parts if isinstance(part, ToolUse)]
            case ToolCallEnd() | ToolCallError() | ToolCallBlocked():
                results[event.data.call_id] += 1
            case _:
                pass
    if len(set(asked)) != len(asked):
        raise Violation(f"{run_id}: a call id is used twice: {asked}")
    if results != Counter(asked):
        raise Violation(f"{run_id}: calls {asked}, results {dict(results)}")


def check_effects(world: World, events: list[Event], sole: bool) -> None:
    """Check that there is no effect without an intent, none twice unless allowed, and none unknown unless it was
    at risk."""
    starts = {e.data.call_id: e.data for e in events if isinstance(e.data, ToolCallStart)}
    elsewhere = {e.data.call_id for e in events if isinstance(e.data, AgentSpawn | ClientCallRequested)}
    for event in events:
        match event.data:
            case ToolCallEnd(call_id) if call_id in elsewhere:
                pass  # it had no effect of its own
            case ToolCallEnd(call_id, name):
                effects = world.effects[starts[call_id].idempotency_key]
                if effects < 1 or (effects > 1 and name not in REPEATABLE):
                    raise Violation(f"{starts[call_id]} ended and took effect {effects} times")
            case ToolCallError(call_id=call_id, cause=cause) if call_id in starts:
                key = starts[call_id].idempotency_key
                if world.effects[key] > 1 and starts[call_id].name not in REPEATABLE:
                    raise Violation(f"{starts[call_id]} took effect {world.effects[key]} times")
                if cause == "outcome_unknown" and sole and key not in world.at_risk:
                    raise Violation(f"{starts[call_id]} is marked unknown and was never at risk")
            case ToolCallError(call_id=call_id) | ToolCallBlocked(call_id=call_id):
                if any(key.endswith(f"{event.run_id}/{call_id}") for key in world.effects):
                    raise Violation(f"{event.run_id}/{call_id} took effect without an intent")
            case _:
                pass


def check_approvals(run_id: RunId, events: list[Event]) -> None:
    """Check that a call that needs an approval starts only after it, with the approved arguments, and has one
    decision."""
    asked: dict[str, ApprovalRequested] = {}
    decided: dict[str, ApprovalDecided] = {}
    for event in events:
        match event.data:
            case ApprovalRequested(call_id=call_id) as request:
                if call_id in asked:
                    raise Violation(f"{run_id}: approval of {call_id} was requested twice")
                asked[call_id] = request
            case ApprovalDecided(approval_id) as decision:
                if approval_id in decided:
                    raise Violation(f"{run_id}: {approval_id} was decided twice")
                decided[approval_id] = decision
            case ToolCallStart(call_id, "sign", arguments):
                request = asked.get(call_id)
                decision = decided.get(request.approval_id) if request else None
                if request is None or decision is None or decision.decision != "approve":
                    raise Violation(f"{run_id}: {call_id} was started without an approval")
                if arguments != (decision.arguments or request.arguments):
                    raise Violation(f"{run_id}: {call_id} was started with other arguments than were approved")
            case _:
                pass


def check_fold(origin: Origin, events: list[Event], history: tuple[Message, ...]) -> RunState:
    """Check that folding in two parts gives the same result as folding at once, and that the conversation is well
    formed."""
    middle = len(events) // 2
    whole = fold_all(new_state(origin, history), events)
    halves = fold_all(fold_all(new_state(origin, history), events[:middle]), events[middle:])
    if whole.own_messages != halves.own_messages or whole.metrics(0) != halves.metrics(0):
        raise Violation(f"{origin.run_id}: fold is not incremental")
    messages = tuple(whole.transcript.messages)
    if repair(messages) != messages:
        raise Violation(f"{origin.run_id}: the conversation is malformed")
    return whole


def check_conversation(world: World, id_: int, state: RunState) -> None:
    """Check that the conversation that the owner folded incrementally matches the journal."""
    row = world.disk.execute("SELECT messages, whole FROM said WHERE run = ?", (id_,)).fetchone()
    kept = msgspec.json.decode(row[0], type=tuple[Message, ...]) if row else None
    if kept != state.own_messages or (row is not None and bool(row[1]) != state.context.is_rewritten):
        raise Violation(f"{state.origin.run_id}: the owner kept {kept}, the journal says {state.own_messages}")


def check_session_order(world: World) -> None:
    """Check that a run of a session starts only after the previous one has ended."""
    rows: Any = world.disk.execute(
        "SELECT runs.session_id, runs.id, events.type FROM events JOIN runs ON runs.id = events.run "
        "WHERE events.type IN ('run_start', 'run_end') ORDER BY events.position"
    )
    running: dict[str, int] = {}
    for session_id, id_, type_ in rows:
        if type_ == "run_start":
            if session_id in running:
                raise Violation(f"run {id_} started while {running[session_id]} of its session was running")
            running[session_id] = id_
        else:
            running.pop(session_id, None)
