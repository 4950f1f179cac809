"""The stuck guard: a tool that always fails, and steps without new information."""

from tests.core.story import OTHER_READ, READ, WRITE, Story, fails, noted, outcome, same, use
from treadle.core.steps import CallModel, Finish, Step
from treadle.domain.events import RecoveryAction, RecoveryStage, StuckDetected


def stages(step: Step) -> list[RecoveryStage]:
    return [note.stage for note in noted(step) if isinstance(note, RecoveryAction)]


def failing(story: Story, number: int) -> Step:
    return story.turn(use("read", path=str(number)), answer=fails)


def test_a_tool_that_keeps_failing_is_escalated_by_note_refusal_and_report() -> None:
    story = Story(READ, OTHER_READ)
    seen = {number: stages(failing(story, number)) for number in range(1, 6)}
    assert seen == {1: [], 2: [], 3: ["note"], 4: [], 5: ["refuse_tool"]}
    assert stages(failing(story, 6)) == []
    assert story.blocked == ["call_6"], "which counts as a failure, for it told nothing either"
    report = failing(story, 7)
    assert stages(report) == ["report"]
    assert isinstance(report, CallModel)
    assert not report.tools_offered


def test_observation_and_action_are_both_recorded() -> None:
    story = Story(READ)
    for number in (1, 2):
        failing(story, number)
    detected, action = noted(failing(story, 3))
    assert detected == StuckDetected("failing_tool", 3, "read")
    assert isinstance(action, RecoveryAction)
    assert "`read` failed 3 times" in action.note


def test_the_refused_tool_is_refused_for_one_turn_and_others_are_not() -> None:
    story = Story(READ, OTHER_READ)
    for number in range(1, 6):
        failing(story, number)
    story.turn(use("read", path="x"), use("look", at="y"))
    story.turn(use("read", path="z"))
    assert story.blocked == ["call_6"]
    assert story.ran[-2:] == ["call_7", "call_8"]


def test_a_report_ends_the_run_well() -> None:
    story = Story(READ)
    for number in range(1, 8):
        failing(story, number)
    assert outcome(story.turn(text="I could not read anything.")) == "completed"


def test_a_model_that_calls_a_tool_instead_of_reporting_is_prompted_again() -> None:
    story = Story(READ)
    for number in range(1, 8):
        failing(story, number)
    again = failing(story, 8)
    assert stages(again) == ["report_again"]
    assert isinstance(again, CallModel)
    assert not again.tools_offered
    assert story.blocked[-1] == "call_8"
    assert outcome(story.turn(text="I could not read anything.")) == "completed"


def test_a_model_that_calls_instead_of_reporting_is_stopped() -> None:
    story = Story(READ, limits={"max_steps": None})
    step, number = failing(story, 1), 1
    while not isinstance(step, Finish) and number < 30:
        number += 1
        step = failing(story, number)
    assert outcome(step) == "stuck"
    assert len(story.ran) <= 8


def test_eight_failures_stop_the_run_in_any_order() -> None:
    story = Story(READ)
    calls = [use("read", path=str(number)) for number in range(8)]
    assert outcome(story.turn(*calls, answer=fails)) == "stuck"


def test_a_success_of_the_tool_starts_its_count_over() -> None:
    story = Story(READ)
    for number in range(20):
        step = story.turn(use("read", path=str(number)), answer=fails) if number % 3 else failing_not(story, number)
        assert isinstance(step, CallModel)
        assert stages(step) == []


def failing_not(story: Story, number: int) -> Step:
    return story.turn(use("read", path=str(number)))


def test_a_successful_write_starts_the_failure_counts_over() -> None:
    story = Story(READ, WRITE)
    for number in range(6):
        failing(story, 3 * number)
        failing(story, 3 * number + 1)
        story.turn(use("write", text=str(number)))
    assert story.happened(StuckDetected) == []


def test_steps_without_progress_are_escalated() -> None:
    story = Story(READ, limits={"stuck_steps": 3})
    first = story.turn(use("read", path="0"), answer=same)
    assert stages(first) == []
    seen: list[list[RecoveryStage]] = []
    step: Step = first
    for number in range(1, 8):
        step = story.turn(use("read", path=str(number)), answer=same)
        if isinstance(step, Finish):
            break
        seen.append(stages(step))
    assert seen == [[], [], ["note"], ["refuse_tool"], ["report"], ["report_again"]]
    assert outcome(step) == "stuck"


def test_text_is_new_information() -> None:
    story = Story(READ, limits={"stuck_steps": 3})
    for number in range(12):
        story.turn(use("read", path=str(number)), text=f"thought {number}", answer=same)
    assert story.happened(StuckDetected) == []


def test_a_new_result_ends_the_escalation() -> None:
    story = Story(READ, limits={"stuck_steps": 3})
    for number in range(4):
        story.turn(use("read", path=str(number)), answer=same)
    story.turn(use("read", path="else"))
    for number in range(10, 12):
        assert stages(story.turn(use("read", path=str(number)), answer=same)) == []
    assert stages(story.turn(use("read", path="12"), answer=same)) == ["note"]


def test_the_escalation_follows_from_the_journal_alone() -> None:
    story = Story(READ)
    for number in range(1, 6):
        failing(story, number)
    told_again = Story(READ)
    told_again.happens(*story.events[4:])
    assert told_again.decision() == story.decision()
    assert told_again.state.guards.recovery == story.state.guards.recovery
