"""The stuck guard: a tool that always fails, and steps without new information."""

from tests.core.run_scenario import OTHER_READ, READ, WRITE, RunScenario, fails, noted, outcome, same, use
from treadle.core.guards import stuck
from treadle.core.steps import CallModel, Finish, Step
from treadle.domain.events import RecoveryAction, RecoveryStage, StuckDetected, ToolCallBlocked


def stages(step: Step) -> list[RecoveryStage]:
    return [note.stage for note in noted(step) if isinstance(note, RecoveryAction)]


def fail_once(scenario: RunScenario, number: int) -> Step:
    return scenario.turn(use("read", path=str(number)), answer=fails)


def test_a_tool_that_keeps_failing_is_escalated_by_note_refusal_and_report() -> None:
    scenario = RunScenario(READ, OTHER_READ)
    seen = {number: stages(fail_once(scenario, number)) for number in range(1, 6)}
    assert seen == {1: [], 2: [], 3: ["note"], 4: [], 5: ["refuse_tool"]}
    assert stages(fail_once(scenario, 6)) == []
    assert scenario.blocked == ["call_6"], "which counts as a failure, for it told nothing either"
    report = fail_once(scenario, 7)
    assert stages(report) == ["report"]
    assert isinstance(report, CallModel)
    assert not report.tools_offered


def test_observation_and_action_are_both_recorded() -> None:
    scenario = RunScenario(READ)
    for number in (1, 2):
        fail_once(scenario, number)
    detected, action = noted(fail_once(scenario, 3))
    assert detected == StuckDetected("failing_tool", 3, "read")
    assert isinstance(action, RecoveryAction)
    assert "`read` failed 3 times" in action.note


def test_the_refused_tool_is_refused_for_one_turn_and_others_are_not() -> None:
    scenario = RunScenario(READ, OTHER_READ)
    for number in range(1, 6):
        fail_once(scenario, number)
    scenario.turn(use("read", path="x"), use("look", at="y"))
    scenario.turn(use("read", path="z"))
    assert scenario.blocked == ["call_6"]
    assert scenario.ran[-2:] == ["call_7", "call_8"]


def test_a_report_completes_the_run() -> None:
    scenario = RunScenario(READ)
    for number in range(1, 8):
        fail_once(scenario, number)
    assert outcome(scenario.turn(text="I could not read anything.")) == "completed"


def test_a_model_that_calls_a_tool_instead_of_reporting_is_prompted_again() -> None:
    scenario = RunScenario(READ)
    for number in range(1, 8):
        fail_once(scenario, number)
    again = fail_once(scenario, 8)
    assert stages(again) == ["report_again"]
    assert isinstance(again, CallModel)
    assert not again.tools_offered
    assert scenario.blocked[-1] == "call_8"
    assert outcome(scenario.turn(text="I could not read anything.")) == "completed"


def test_a_model_that_calls_instead_of_reporting_is_stopped() -> None:
    scenario = RunScenario(READ, limits={"max_steps": None})
    step, number = fail_once(scenario, 1), 1
    while not isinstance(step, Finish) and number < 30:
        number += 1
        step = fail_once(scenario, number)
    assert outcome(step) == "stuck"
    assert len(scenario.ran) <= 8


def test_eight_failures_stop_the_run_in_any_order() -> None:
    scenario = RunScenario(READ)
    calls = [use("read", path=str(number)) for number in range(8)]
    assert outcome(scenario.turn(*calls, answer=fails)) == "stuck"


def test_a_success_of_the_tool_starts_its_count_over() -> None:
    scenario = RunScenario(READ)
    for number in range(20):
        step = (
            scenario.turn(use("read", path=str(number)), answer=fails)
            if number % 3
            else succeed_once(scenario, number)
        )
        assert isinstance(step, CallModel)
        assert stages(step) == []


def succeed_once(scenario: RunScenario, number: int) -> Step:
    return scenario.turn(use("read", path=str(number)))


def test_a_successful_write_starts_the_failure_counts_over() -> None:
    scenario = RunScenario(READ, WRITE)
    for number in range(6):
        fail_once(scenario, 3 * number)
        fail_once(scenario, 3 * number + 1)
        scenario.turn(use("write", text=str(number)))
    assert scenario.happened(StuckDetected) == []


def test_steps_without_progress_are_escalated() -> None:
    scenario = RunScenario(READ, limits={"stuck_steps": 3})
    first = scenario.turn(use("read", path="0"), answer=same)
    assert stages(first) == []
    seen: list[list[RecoveryStage]] = []
    step: Step = first
    for number in range(1, 8):
        step = scenario.turn(use("read", path=str(number)), answer=same)
        if isinstance(step, Finish):
            break
        seen.append(stages(step))
    assert seen == [[], [], ["note"], ["refuse_tool"], ["report"], ["report_again"]]
    assert outcome(step) == "stuck"


def test_new_text_counts_as_progress() -> None:
    scenario = RunScenario(READ, limits={"stuck_steps": 3})
    for number in range(12):
        scenario.turn(use("read", path=str(number)), text=f"thought {number}", answer=same)
    assert scenario.happened(StuckDetected) == []


def test_a_new_result_ends_the_escalation() -> None:
    scenario = RunScenario(READ, limits={"stuck_steps": 3})
    for number in range(4):
        scenario.turn(use("read", path=str(number)), answer=same)
    scenario.turn(use("read", path="else"))
    for number in range(10, 12):
        assert stages(scenario.turn(use("read", path=str(number)), answer=same)) == []
    assert stages(scenario.turn(use("read", path="12"), answer=same)) == ["note"]


def test_the_escalation_follows_from_the_journal_alone() -> None:
    scenario = RunScenario(READ)
    for number in range(1, 6):
        fail_once(scenario, number)
    told_again = RunScenario(READ)
    told_again.happens(*scenario.events[4:])
    assert told_again.decision() == scenario.decision()
    assert told_again.state.guards.recovery == scenario.state.guards.recovery


def last_note(step: Step) -> str:
    [note] = [each.note for each in noted(step) if isinstance(each, RecoveryAction)]
    return note


def test_a_tool_refused_for_lack_of_news_is_not_said_to_have_failed() -> None:
    scenario = RunScenario(READ, limits={"stuck_steps": 3})
    for number in range(6):
        scenario.turn(use("read", path=str(number)), answer=same)
    [refusal] = scenario.happened(ToolCallBlocked)
    assert isinstance(refusal, ToolCallBlocked)
    assert refusal.content == "Refused for this turn: the last 4 steps brought nothing new. Try another way."


def test_refused_calls_are_not_said_to_have_failed() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("read", path="a"), answer=same)
    scenario.turn(use("read", path="a"), answer=same)
    for _ in range(2):
        scenario.turn(use("read", path="a"), answer=same)
    assert "`read` was refused 3 times in a row." in last_note(scenario.turn(use("read", path="a"), answer=same))
    mixed = RunScenario(READ)
    for number in range(1, 7):
        fail_once(mixed, number)
    assert "`read` failed or was refused 7 times in a row." in last_note(fail_once(mixed, 7))


def test_every_end_reports_what_was_detected() -> None:
    failing = RunScenario(READ)
    step = failing.turn(*[use("read", path=str(number)) for number in range(8)], answer=fails)
    assert isinstance(step, Finish)
    assert step.events == (StuckDetected("failing_tool", stuck.FAILURES_STOP, "read"),)
    assert step.outcome.reason == "The run makes no progress: `read` failed 8 times in a row."


def test_a_different_successful_call_with_an_effect_is_progress_and_an_equal_one_is_not() -> None:
    scenario = RunScenario(WRITE, limits={"stuck_steps": 2})
    for number in range(20):
        assert stages(scenario.turn(use("write", text=str(number)), answer=same)) == []
    seen = [stages(scenario.turn(use("write", text=str(number)), answer=same)) for number in range(2)]
    assert seen == [[], ["note"]]
