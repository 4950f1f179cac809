"""False alarms of the guards, measured: productive patterns and whole sessions are never called stuck and lose no
call, and patterns without progress end. `python -m tests.engine.run_patterns` prints the table."""

from tests.engine.run_patterns import Finding, Pattern, expand, load_patterns, render_table, run_patterns
from tests.engine.running import virtually

LEAST_PRODUCTIVE, LEAST_SESSIONS, LEAST_STOPPED = 40, 15, 15


def run(patterns: list[Pattern], **limits: int) -> list[Finding]:
    return virtually(run_patterns(patterns, **limits))


def test_productive_patterns_and_sessions_are_not_stopped() -> None:
    short, sessions = load_patterns("productive"), load_patterns("sessions")
    assert len(short) + len(sessions) >= LEAST_PRODUCTIVE
    assert len(sessions) >= LEAST_SESSIONS
    assert all(session.source for session in sessions)
    findings = run([*short, *sessions])
    alarms = [each for each in findings if each.outcome != "completed" or each.kinds or each.refused]
    assert not alarms, render_table(alarms)
    assert all(each.ran == each.planned for each in findings)


def test_patterns_without_progress_are_stopped_and_say_so() -> None:
    patterns = load_patterns("stopped")
    assert len(patterns) >= LEAST_STOPPED
    missed = [each for each in run(patterns) if each.outcome != "stuck" or each.kinds[-1] not in each.pattern.kinds]
    assert not missed, render_table(missed)


def test_zero_stuck_steps_turn_the_stuck_guard_off_and_leave_the_loop_guard_on() -> None:
    patterns = load_patterns("stopped")
    findings = run(patterns, stuck_steps=0)
    for each in findings:
        assert set(each.kinds) <= {"repeated_call", "repeated_cycle"}, each
        assert each.outcome == ("stuck" if each.kinds else "completed"), each
    assert findings[0].kinds == ("repeated_call",)


def test_patterns_are_distinct() -> None:
    patterns = [pattern for name in ("productive", "sessions", "stopped") for pattern in load_patterns(name)]
    assert len({pattern.name for pattern in patterns}) == len(patterns)
    assert len({tuple(map(str, expand(pattern))) for pattern in patterns}) == len(patterns)
