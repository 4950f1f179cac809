"""What the core decides after a reply without calls, and when a run reaches a limit."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.run_scenario import READ, START, RunScenario, noted, outcome, spec, use, waits
from treadle.core.context.projection import make_preamble
from treadle.core.steps import CallModel, Finish, Step
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec, Loop
from treadle.domain.events import BudgetHint, Continuation, EmptyTurn, OutputRejected
from treadle.domain.messages import Text, Thinking, user
from treadle.domain.runs import Outcome, Usage
from treadle.domain.schemas import find_mismatch

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def result(step: Step) -> Outcome:
    assert isinstance(step, Finish), step
    return step.outcome


# ── Answers ──


def test_an_answer_completes_the_run() -> None:
    assert result(RunScenario().turn(text="Here it is.")) == Outcome("completed", "Here it is.")


@pytest.mark.parametrize("text", ["NO_REPLY", "[SILENT]", "  NO_REPLY\n"])
def test_a_silent_answer_is_stored_and_returned_as_empty(text: str) -> None:
    scenario = RunScenario()
    ended = result(scenario.turn(text=text))
    assert (ended.kind, ended.text) == ("silent", "")
    assert scenario.state.transcript.messages[-1].text == "[no reply needed]"


def test_an_answer_that_merely_contains_the_silent_marker_is_an_answer() -> None:
    assert result(RunScenario().turn(text="Say NO_REPLY to stay silent.")).kind == "completed"


def test_calls_next_to_the_silent_marker_still_run() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("read", path="a"), text="NO_REPLY")
    assert scenario.ran == ["call_1"]


def test_an_empty_turn_is_nudged_once_and_then_ends_the_run() -> None:
    scenario = RunScenario()
    nudged = scenario.turn()
    assert [type(note) for note in noted(nudged)] == [EmptyTurn]
    assert result(scenario.turn()).kind == "empty"


def test_reasoning_alone_is_an_empty_turn() -> None:
    scenario = RunScenario()
    scenario.asks()
    scenario.happens(
        e.LlmResponse(
            step=1,
            attempt=1,
            parts=(Thinking("hm", "p", "m"), Text(" \n")),
            stop="end_turn",
            usage=Usage(),
            duration_ms=1,
        )
    )
    assert [type(note) for note in noted(scenario.decision())] == [EmptyTurn]


def test_empty_turns_count_only_in_a_row() -> None:
    scenario = RunScenario(READ)
    scenario.turn()
    scenario.turn(use("read", path="a"))
    assert [type(note) for note in noted(scenario.turn())] == [EmptyTurn]


def test_a_cut_reply_is_continued_five_times_and_then_truncated_with_all_its_text() -> None:
    scenario = RunScenario()
    for number in range(5):
        scenario.asks()
        scenario.replies(text=f"part {number}, ", stop="max_tokens")
        [note] = noted(scenario.decision())
        assert isinstance(note, Continuation)
        assert note.count == number + 1
    scenario.asks()
    scenario.replies(text="part 5", stop="max_tokens")
    ended = result(scenario.decision())
    assert ended.kind == "truncated"
    assert ended.text == "part 0, part 1, part 2, part 3, part 4, part 5"


def test_a_continued_reply_that_ends_is_one_answer() -> None:
    scenario = RunScenario()
    scenario.asks()
    scenario.replies(text="The answer ", stop="max_tokens")
    assert result(scenario.turn(text="is 42.")) == Outcome("completed", "The answer is 42.")


def test_a_cut_reply_without_continuations_is_truncated_at_once() -> None:
    scenario = RunScenario(limits={"max_continuations": 0})
    scenario.asks()
    scenario.replies(text="half", stop="max_tokens")
    assert result(scenario.decision()).kind == "truncated"


# ── Output ──


def test_an_invalid_answer_is_requested_again_twice_and_then_fails() -> None:
    scenario = RunScenario(output=SCHEMA)
    for count, text in enumerate(("no", '{"n": "x"}'), start=1):
        [note] = noted(scenario.turn(text=text))
        assert isinstance(note, OutputRejected)
        assert note.count == count
    ended = result(scenario.turn(text="{}"))
    assert ended.kind == "failed"
    assert "output schema" in ended.reason


def test_a_valid_answer_after_an_invalid_one_completes() -> None:
    scenario = RunScenario(output=SCHEMA)
    scenario.turn(text="no")
    assert result(scenario.turn(text='{"n": 1}')) == Outcome("completed", '{"n": 1}')


def test_the_error_says_where_the_answer_is_invalid() -> None:
    assert find_mismatch('{"n": "x"}', SCHEMA) == 'at `n`: "x" is not of type "integer"'
    assert find_mismatch('{"n": 1}', SCHEMA) is None


@pytest.mark.parametrize("text", ["", "{", "\ud800", "[" * 100_000])
def test_any_answer_that_is_not_json_is_a_mismatch(text: str) -> None:
    assert "not JSON" in str(find_mismatch(text, SCHEMA))


def test_a_schema_may_not_make_the_core_read_files(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"const": "from the file"}')
    error = find_mismatch("1", {"$ref": (tmp_path / "schema.json").as_uri()})
    assert error is not None
    assert "from the file" not in error


def test_string_formats_of_a_schema_are_checked() -> None:
    assert find_mismatch('"tomorrow"', {"type": "string", "format": "date-time"}) is not None


def test_the_marker_is_removed_before_a_schema_is_checked() -> None:
    scenario = RunScenario(output=SCHEMA, loop=Loop(final_marker="DONE"))
    assert result(scenario.turn(text='{"n": 1} DONE')) == Outcome("completed", '{"n": 1}')


# ── The marker ──


def test_the_final_marker_ends_the_run_and_skips_its_calls() -> None:
    scenario = RunScenario(READ, loop=Loop(final_marker="DONE"))
    step = scenario.turn(use("read", path="a"), text="All is well. DONE")
    assert isinstance(step, Finish)
    assert step.outcome == Outcome("completed", "All is well.")
    scenario.happens(*step.events)
    assert scenario.errors["call_1"].kind == "skipped"
    assert scenario.ran == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("All is well. DONE", "All is well."),
        ("All is well.\n\n**DONE**", "All is well."),
        ("All is well.\n\n`DONE`.\n", "All is well."),
        ('{"n": 1}DONE', '{"n": 1}'),
        ("First (DONE) and then more.", "First and then more."),
        ("Nothing is UNDONE here. DONE", "Nothing is UNDONE here."),
        ("a\n  indented\n\nDONE\n\nb", "a\n  indented\n\nb"),
        ("DONE", ""),
        ("DONE: the answer", "the answer"),
        ("**DONE:** the answer", "the answer"),
        ("# DONE\nanswer", "answer"),
        ("answer\n> DONE", "answer"),
        ("answer\n\n- DONE", "answer"),
        ("<DONE>All good.</DONE>", "All good."),
        ("It is <DONE>42</DONE>.", "It is 42."),
        ("[DONE]\nAll good.\n[/DONE]", "All good."),
        ("All good. <DONE/>", "All good."),
        ("All good.\n<DONE />", "All good."),
        ("All good.\n<|DONE|>", "All good."),
    ],
)
def test_the_final_marker_is_removed_from_the_answer(text: str, left: str) -> None:
    assert result(RunScenario(loop=Loop(final_marker="DONE")).turn(text=text)) == Outcome("completed", left)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("FINAL ANSWER: 42", "42"),
        ("I counted.\n**FINAL ANSWER:** 42", "I counted.\n42"),
        ("All done. FINAL ANSWER: 42", "All done. FINAL ANSWER: 42"),
        ("All done. **FINAL ANSWER**: 42", "All done. **FINAL ANSWER**: 42"),
        ("All done. FINAL ANSWER = 42", "All done. FINAL ANSWER = 42"),
        ("So the FINAL ANSWER is 42.", "So the FINAL ANSWER is 42."),
        ("All done. FINAL ANSWER", "All done."),
        ("All done. FINAL ANSWER.", "All done."),
        ("It is 42. FINAL ANSWER: 42\nFINAL ANSWER", "It is 42. FINAL ANSWER: 42"),
    ],
)
def test_a_marker_that_introduces_the_answer_leaves_no_fragment(text: str, left: str) -> None:
    scenario = RunScenario(loop=Loop(final_marker="FINAL ANSWER"))
    assert result(scenario.turn(text=text)) == Outcome("completed", left)


def test_a_word_that_contains_the_marker_does_not_end_the_run() -> None:
    scenario = RunScenario(READ, loop=Loop(final_marker="DONE"))
    scenario.turn(use("read", path="a"), text="This is UNDONE and DONE_LATER.")
    assert scenario.ran == ["call_1"]


def test_calls_run_if_the_final_marker_is_missing() -> None:
    scenario = RunScenario(READ, loop=Loop(final_marker="DONE"))
    scenario.turn(use("read", path="a"), text="Not yet.")
    assert scenario.ran == ["call_1"]


def test_the_prompt_mentions_the_marker_and_the_schema() -> None:
    agent = AgentSpec("hero", "m", persona="Be kind.", output=SCHEMA, loop=Loop(final_marker="DONE"))
    system = make_preamble(agent, (READ,)).system
    assert system.startswith("Be kind.\n\n")
    assert '"required":["n"]' in system
    assert system.endswith("end your answer with DONE")


# ── Limits ──


def test_a_run_ends_at_its_step_limit() -> None:
    scenario = RunScenario(READ, limits={"max_steps": 2})
    scenario.turn(use("read", path="a"))
    assert result(scenario.turn(use("read", path="b"))).kind == "max_steps"


def test_a_final_answer_on_the_last_step_completes() -> None:
    scenario = RunScenario(READ, limits={"max_steps": 2})
    scenario.turn(use("read", path="a"))
    assert result(scenario.turn(text="done")).kind == "completed"


def test_a_run_without_a_step_limit_continues() -> None:
    scenario = RunScenario(READ, limits={"max_steps": None})
    for number in range(120):
        assert isinstance(scenario.turn(use("read", path=str(number))), CallModel)


def test_a_retry_is_not_another_step() -> None:
    scenario = RunScenario(limits={"max_steps": 1})
    scenario.asks()
    scenario.happens(e.LlmError(1, 1, "overloaded", "busy", True), e.LlmRetry(1, 1, START, 0))
    assert result(scenario.turn(text="done")).kind == "completed"


def test_a_limit_ends_the_run_with_its_last_text() -> None:
    scenario = RunScenario(READ, limits={"max_steps": 2})
    scenario.turn(use("read", path="a"), text="So far: the door is open.")
    assert result(scenario.turn(use("read", path="b"))).text == "So far: the door is open."


def test_the_deadline_ends_the_run_in_any_state() -> None:
    scenario = RunScenario(READ, limits={"deadline": "10s"})
    scenario.asks()
    scenario.replies(use("read", path="a"), text="so far")
    scenario.now = START + 9.999
    assert not isinstance(scenario.decision(), Finish)
    scenario.now = START + 10
    ended = result(scenario.decision())
    assert (ended.kind, ended.text) == ("deadline", "so far")


def test_hints_are_given_once_at_70_and_90_percent_if_enabled() -> None:
    told: dict[bool, list[tuple[int, int]]] = {}
    for wanted in (True, False):
        scenario = RunScenario(READ, limits={"max_steps": 10}, budget_hints=wanted)
        told[wanted] = []
        for number in range(1, 10):
            step = scenario.turn(use("read", path=str(number)))
            told[wanted] += [(number, note.percent) for note in noted(step) if isinstance(note, BudgetHint)]
    assert told == {True: [(7, 70), (9, 90)], False: []}


# ── People ──


def test_a_cancel_ends_the_run_with_its_partial_output() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("read", path="a"), text="so far")
    scenario.happens(e.CancelRequested("enough"))
    ended = result(scenario.decision())
    assert (ended.kind, ended.text) == ("cancelled", "so far")
    assert "enough" in ended.reason


def test_the_calls_of_an_interrupted_run_wait_until_it_is_resumed() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.replies(use("read", path="a"))
    scenario.happens(e.RunInterrupted("wait"))
    assert waits(scenario.decision()).reason == "interrupted"
    scenario.happens(e.ResumeRequested())
    scenario.works()
    assert scenario.ran == ["call_1"]


def test_an_interrupted_run_still_has_its_deadline() -> None:
    scenario = RunScenario(limits={"deadline": 60})
    scenario.happens(e.RunInterrupted("wait"))
    assert waits(scenario.decision()).wake_at == START + 60


def test_resuming_an_uninterrupted_run_sends_nothing_to_the_model() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.happens(e.ResumeRequested())
    assert scenario.state.turn.inbox == []


def test_a_message_that_came_with_the_final_answer_is_answered_too() -> None:
    scenario = RunScenario()
    scenario.asks()
    scenario.happens(e.MessageSteered(user("and one more thing"), "steer"))
    scenario.replies(text="done")
    assert isinstance(scenario.decision(), CallModel)
    assert outcome(scenario.turn(text="that too")) == "completed"


def test_several_messages_are_one_turn_of_the_user_in_their_order() -> None:
    scenario = RunScenario()
    scenario.happens(e.MessageSteered(user("two"), "steer"), e.MessageSteered(user("three"), "steer"))
    scenario.asks()
    assert [message.text for message in scenario.state.transcript.messages] == ["go\n\ntwo\n\nthree"]


# ── Recoveries ──


def test_a_run_is_set_aside_after_three_deaths_alone_in_trials_without_progress() -> None:
    scenario = RunScenario()
    for number in range(4):
        scenario.happens(e.RunRecovered(number, "died"))
        assert isinstance(scenario.decision(), CallModel)
        if number >= 1:
            scenario.happens(e.TrialStarted(f"trl_{number}", 1))
    scenario.happens(e.RunRecovered(5, "died"))
    step = scenario.decision()
    assert outcome(step) == "quarantined"
    assert isinstance(step, Finish)
    assert step.events == (e.RunQuarantined(5),)


def test_progress_between_recoveries_starts_their_count_over() -> None:
    scenario = RunScenario(READ)
    for number in range(10):
        scenario.happens(e.RunRecovered(number, "died"))
        assert isinstance(scenario.turn(use("read", path=str(number))), CallModel)


def test_an_agent_can_answer_without_calling_its_tools() -> None:
    assert outcome(RunScenario(spec("nothing")).turn(text="done")) == "completed"
