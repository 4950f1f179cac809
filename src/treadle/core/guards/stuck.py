"""Guard against runs that make no progress: a tool that always fails, or steps that bring nothing new.

The reaction escalates: a note; then the failing tool is refused for a turn (it stays in the schema, so that the
prompt prefix does not change); then a turn without tools that must report, requested once more if the model calls
a tool instead; then the end."""

from treadle.core.guards.verdict import BlockCall, StopVerdict, WarnModel
from treadle.core.state import RunState
from treadle.core.tools.ledger import WARN_AFTER_FAILURES, Call
from treadle.domain.events import REPORT_STAGES, RecoveryAction, RecoveryStage, StuckDetected, StuckKind
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

FAILURES_STOP = 8
FAILURES_BETWEEN_STAGES = 2
FAILURES_OF_ALL_STOP = 16
"""Consecutive failed calls, of any tools."""
STAGES: tuple[RecoveryStage, ...] = ("note", "refuse_tool", "report")
CALLED_INSTEAD = (
    "Your calls were refused: no tool can be called now. Answer in text: what you found and what is missing."
)


def judge_call(state: RunState, call: Call) -> BlockCall | None:
    """Return why a call may not run in a turn for which its tool was refused, or None."""
    if state.guards.recovery.refused_tool == call.name:
        failures = state.ledger.failures.get(call.name, 0)
        kind: StuckKind = "failing_tool" if failures >= WARN_AFTER_FAILURES else "no_new_information"
        what = _describe(state, kind, failures or state.guards.recovery.quiet_steps, call.name)
        return BlockCall("stuck", f"Refused for this turn: {what}. Try another way.")
    if _is_in_report_turn(state):
        return BlockCall("stuck", "Refused: no more calls. Report what you found and what is missing.")
    return None


def _is_in_report_turn(state: RunState) -> bool:
    """Return whether the latest reply answers a request for a report."""
    recovery = state.guards.recovery
    return state.turn.reply is not None and recovery.stage in REPORT_STAGES and not recovery.report_due


def judge(state: RunState, now: Instant) -> WarnModel | StopVerdict | None:
    """Return the reaction to a run that makes no progress, or None."""
    if (stuck_steps := state.agent.limits.stuck_steps) == 0:
        return None
    if state.turn.calls and _is_in_report_turn(state):
        if state.guards.recovery.stage == "report":
            return WarnModel((RecoveryAction("report_again", CALLED_INSTEAD),))
        return _make_stop(state, "no_report", len(REPORT_STAGES), None)
    if (failed := state.ledger.failed_in_a_row) >= FAILURES_OF_ALL_STOP:
        return _make_stop(state, "failing_calls", failed, None)
    tool, failures = state.ledger.find_worst_failure()
    if failures >= WARN_AFTER_FAILURES:
        if failures >= FAILURES_STOP:
            return _make_stop(state, "failing_tool", failures, tool)
        return _escalate(state, "failing_tool", failures, FAILURES_BETWEEN_STAGES, tool)
    quiet_steps = state.guards.recovery.quiet_steps
    if quiet_steps >= stuck_steps:
        return _escalate(state, "no_new_information", quiet_steps, 1, _find_last_tool(state))
    return None


def _escalate(
    state: RunState, kind: StuckKind, count: int, pace: int, tool: str | None
) -> WarnModel | StopVerdict | None:
    recovery = state.guards.recovery
    if recovery.stage is not None and count < recovery.detected_at + pace:
        return None
    if recovery.stage in REPORT_STAGES:
        return _make_stop(state, kind, count, tool)
    stage = STAGES[0 if recovery.stage is None else STAGES.index(recovery.stage) + 1]
    note = _write_note(stage, _describe(state, kind, count, tool), tool)
    return WarnModel((StuckDetected(kind, count, tool), RecoveryAction(stage, note, tool)))


def _describe(state: RunState, kind: StuckKind, count: int, tool: str | None) -> str:
    match kind:
        case "failing_tool":
            return f"`{tool}` {_name_end(count, state.ledger.refusals.get(tool or '', 0))} {count} times in a row"
        case "failing_calls":
            refused = "or were refused " if state.ledger.refusals else ""
            return f"{count} calls failed {refused}in a row"
        case "no_new_information":
            return f"the last {count} steps brought nothing new"
        case "no_report":
            return "the model called tools instead of reporting, twice"
        case "repeated_call" | "repeated_cycle":
            raise AssertionError("the loop guard describes what it detects")


def _name_end(count: int, refused: int) -> str:
    if refused == 0:
        return "failed"
    return "was refused" if refused == count else "failed or was refused"


def _write_note(stage: RecoveryStage, what: str, tool: str | None) -> str:
    match stage:
        case "note":
            return f"You seem stuck: {what}. Say what you know, what is missing, and try a different approach."
        case "refuse_tool":
            return f"You are still stuck: {what}. `{tool}` is refused for the next turn; use another way."
        case "report" | "report_again":
            return f"You are still stuck: {what}. Do not call tools now. Report what you found and what is missing."


def _find_last_tool(state: RunState) -> str | None:
    return state.turn.calls[-1].name if state.turn.calls else None


def _make_stop(state: RunState, kind: StuckKind, count: int, tool: str | None) -> StopVerdict:
    outcome = Outcome(
        "stuck",
        state.turn.answer_so_far,
        reason=f"The run makes no progress: {_describe(state, kind, count, tool)}.",
        next="Send its session a message that says what to do differently.",
    )
    return StopVerdict(outcome, (StuckDetected(kind, count, tool),))
