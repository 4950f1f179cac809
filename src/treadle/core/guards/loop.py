"""Guard against repeated calls: warn, refuse, stop. A refused call still counts.

The counts are reset when the world has changed: a call with an effect succeeded (after an edit, running the same
tests again is not a loop), or a repeated call of any tool had a result that it never had, apart from its times.
That call polls, or moves on, and its own count is reset too. Tools that declare themselves pollers, and commands
that wait before they look, are exempt, with a hint to wait longer."""

from treadle.core.guards.verdict import BlockCall, StopVerdict, WarnModel
from treadle.core.state import RunState
from treadle.core.tools.ledger import Call
from treadle.domain.events import LoopWarning, StuckDetected
from treadle.domain.ids import Instant
from treadle.domain.runs import Outcome

WARN_CALLS, BLOCK_CALLS, STOP_CALLS = 3, 5, 8
WARN_SAME_RESULTS, BLOCK_SAME_RESULTS = 2, 3
STRICT_STOP_CALLS = 3


def judge_call(state: RunState, call: Call) -> BlockCall | StopVerdict | None:
    """Return why a call may not run, or None."""
    if call.is_new:
        return None
    if state.agent.loop.doom_loop == "strict" and call.consecutive >= STRICT_STOP_CALLS:
        what = f"{call.consecutive} calls in a row were the same `{call.name}` call"
        return _make_stop(state, what, StuckDetected("repeated_call", call.consecutive, call.name))
    if call.polls:
        return None
    times = state.ledger.count_occurrences(call)
    if times >= STOP_CALLS:
        what = f"`{call.name}` was called {times} times with the same arguments"
        return _make_stop(state, what, StuckDetected("repeated_call", times, call.name))
    if call.in_cycle and state.ledger.cycle_blocks:
        what = "the same cycle of calls was repeated after it had been refused"
        return _make_stop(state, what, StuckDetected("repeated_cycle", state.ledger.cycle_blocks + 1, call.name))
    if times >= BLOCK_CALLS:
        return _make_block(f"`{call.name}` was called with these very arguments {times - 1} times already.")
    same = state.ledger.count_same_results(call.key)
    if same >= BLOCK_SAME_RESULTS - 1 and times >= BLOCK_SAME_RESULTS:
        return _make_block(f"`{call.name}` with these arguments brought the same result {same} times in a row.")
    if call.in_cycle:
        return _make_block("These calls repeat the same cycle for the third time.")
    return None


def judge_turn(state: RunState, now: Instant) -> WarnModel | None:
    """Return warnings about the calls that the model has just made, or None."""
    warnings = [warning for call in state.turn.calls if not call.is_new and (warning := _make_warning(state, call))]
    return WarnModel(tuple(warnings)) if warnings else None


def _make_warning(state: RunState, call: Call) -> LoopWarning | None:
    same = state.ledger.count_same_results(call.key)
    if call.polls:
        if same < WARN_SAME_RESULTS or same & (same - 1):  # at 2, 4, 8, 16 …
            return None
        note = f"`{call.name}` has not changed for {same} calls. Wait longer before you ask again."
        return LoopWarning(call.name, call.key, same, note)
    if call.occurrence == WARN_CALLS:
        note = f"You have called `{call.name}` with the same arguments {WARN_CALLS} times. Try something else."
        return LoopWarning(call.name, call.key, WARN_CALLS, note)
    if same == WARN_SAME_RESULTS == call.occurrence:
        note = f"`{call.name}` brought the same result again. Calling it once more will be refused."
        return LoopWarning(call.name, call.key, same, note)
    return None


def _make_block(reason: str) -> BlockCall:
    return BlockCall("loop", f"Refused: {reason} Use what you have, or try another way.")


def _make_stop(state: RunState, what: str, detected: StuckDetected) -> StopVerdict:
    outcome = Outcome(
        "stuck",
        state.turn.answer_so_far,
        reason=f"The run went in a loop: {what}.",
        next="Send its session a message that says what to do differently.",
    )
    return StopVerdict(outcome, (detected,))
