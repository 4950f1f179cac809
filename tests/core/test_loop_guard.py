"""The loop guard warns about, refuses and stops repeated calls."""

from collections.abc import Callable
from itertools import count, cycle

import pytest

from tests.core.run_scenario import OTHER_READ, POLL, READ, WRITE, RunScenario, fails, noted, outcome, same, use
from treadle.core.steps import CallModel, Finish
from treadle.core.tools.ledger import Call, Ledger, digest_result, digest_untimed_result, make_call_key
from treadle.domain.agents import Loop
from treadle.domain.events import LoopWarning, ReusedCall, StuckDetected, ToolCallBlocked
from treadle.domain.messages import ToolResult, ToolUse

STRICT = Loop(doom_loop="strict")


def make_timed_results() -> Callable[[Call], str]:
    """Return answers that differ only in their times."""
    seconds = count(10)
    return lambda call: f"10:00:{next(seconds)} nothing to do"


def make_new_results() -> Callable[[Call], str]:
    numbers = count()
    return lambda call: f"result {next(numbers)}"


def test_an_identical_call_is_warned_about_at_3_refused_at_5_and_ends_the_run_at_8() -> None:
    scenario, answer = RunScenario(READ), make_timed_results()
    warned: list[int] = []
    for number in range(1, 8):
        step = scenario.turn(use("read", path="a"), answer=answer)
        warned += [number for note in noted(step) if isinstance(note, LoopWarning)]
    assert warned == [3]
    assert scenario.ran == ["call_1", "call_2", "call_3", "call_4"]
    assert scenario.blocked == ["call_5", "call_6", "call_7"]
    scenario.asks()
    scenario.replies(use("read", path="a"))
    step = scenario.decision()
    assert outcome(step) == "stuck"
    assert isinstance(step, Finish)
    assert step.events[-1] == StuckDetected("repeated_call", 8, "read")


def test_a_refused_call_gets_a_result_that_says_why() -> None:
    scenario, answer = RunScenario(READ), make_timed_results()
    for _ in range(5):
        scenario.turn(use("read", path="a"), answer=answer)
    last = scenario.state.transcript.messages[-1]
    assert [part.call_id for part in last.parts if isinstance(part, ToolResult)] == ["call_5"]
    [refusal] = scenario.happened(ToolCallBlocked)
    assert isinstance(refusal, ToolCallBlocked)
    assert refusal.guard == "loop"
    assert "4 times already" in refusal.content


def test_the_same_result_is_warned_about_at_2_and_refused_at_3() -> None:
    scenario = RunScenario(READ)
    first = scenario.turn(use("read", path="a"), answer=same)
    second = scenario.turn(use("read", path="a"), answer=same)
    scenario.turn(use("read", path="a"), answer=same)
    assert noted(first) == []
    assert [type(note) for note in noted(second)] == [LoopWarning]
    assert scenario.ran == ["call_1", "call_2"]
    assert scenario.blocked == ["call_3"]


def test_the_same_call_with_other_arguments_is_not_counted() -> None:
    scenario = RunScenario(READ)
    for number in range(12):
        assert noted(scenario.turn(use("read", path=str(number)))) == []
    assert scenario.blocked == []


def test_arguments_are_compared_by_value() -> None:
    keys = {
        make_call_key(ToolUse("1", "read", '{"a": 1, "b": [1, 2]}')),
        make_call_key(ToolUse("2", "read", '{"b":[1,2],"a":1}')),
    }
    assert len(keys) == 1
    assert make_call_key(ToolUse("3", "read", '{"a": 2, "b": [1, 2]}')) not in keys
    assert make_call_key(ToolUse("4", "look", '{"a": 1, "b": [1, 2]}')) not in keys


def test_long_arguments_are_distinguished() -> None:
    long = "x" * 10_000
    assert make_call_key(use("read", path=long + "a")) != make_call_key(use("read", path=long + "b"))
    assert len(make_call_key(use("read", path=long))) < 300


@pytest.mark.parametrize(
    "arguments", ["", "not json", "[" * 100_000, "[" * 5000 + "]" * 5000, "\ud800", "9" * 6000, "1e999", "null"]
)
def test_any_arguments_of_a_model_have_a_call_key(arguments: str) -> None:
    assert make_call_key(ToolUse("1", "read", arguments)).startswith("read ")


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_repeated_call_whose_result_is_new_each_time_is_not_stopped(tool: str) -> None:
    scenario, answer = RunScenario(READ, WRITE, limits={"max_steps": None}), make_new_results()
    asked = use("read", path="log") if tool == "read" else use("write", text="next")
    steps = [scenario.turn(asked, answer=answer) for _ in range(20)]
    assert len(scenario.ran) == 20
    assert not any(noted(step) for step in steps[3:])


def test_a_new_result_of_a_repeated_call_shows_that_others_may_have_changed() -> None:
    scenario, answer = RunScenario(READ, OTHER_READ), make_new_results()
    for _ in range(6):
        scenario.turn(use("look", at="status"), answer=answer)
        scenario.turn(use("read", path="a"), answer=same)
    assert scenario.blocked == []


def test_results_that_a_call_had_before_are_not_new() -> None:
    scenario, results = RunScenario(READ, limits={"stuck_steps": 1000}), cycle(("up", "down"))
    for _ in range(7):
        scenario.turn(use("read", path="a"), answer=lambda _: next(results))
    assert scenario.ran == ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6"]
    assert scenario.blocked == ["call_7"]


def test_a_fork_knows_the_results_of_repeated_calls() -> None:
    calls = [
        ReusedCall(f"c{n}", "read", "read {}", told=digest_result(text).hex(), untimed=untimed)
        for n, text in enumerate(("10:00 idle", "11:00 idle", "1 done", "2 done"))
        for untimed in [digest_untimed_result(text).hex()]
    ]
    ledger = Ledger()
    counts: list[int] = []
    for each in calls:
        ledger.add_reused_calls([each])
        counts.append(ledger.counts[each.key])
    assert counts == [1, 2, 0, 0]


@pytest.mark.parametrize("period", [2, 3, 4])
def test_a_cycle_is_refused_in_its_third_round_and_then_ends_the_run(period: int) -> None:
    scenario = RunScenario(READ, limits={"stuck_steps": 1000})
    answer = make_timed_results()
    for number in range(3 * period):
        scenario.turn(use("read", path=str(number % period)), answer=answer)
    assert scenario.blocked == [f"call_{3 * period}"]
    scenario.asks()
    scenario.replies(use("read", path="0"))
    assert outcome(scenario.decision()) == "stuck"


def test_a_cycle_of_five_is_not_a_cycle() -> None:
    scenario, answer = RunScenario(READ, limits={"stuck_steps": 1000}), make_new_results()
    for number in range(15):
        scenario.turn(use("read", path=str(number % 5)), answer=answer)
    assert scenario.blocked == []


def test_two_rounds_are_not_a_cycle() -> None:
    scenario, answer = RunScenario(READ), make_new_results()
    for path in ("a", "b", "a", "b", "c"):
        scenario.turn(use("read", path=path), answer=answer)
    assert scenario.blocked == []


def test_strict_ends_the_run_at_three_consecutive_calls_with_any_results() -> None:
    scenario, answer = RunScenario(READ, loop=STRICT), make_new_results()
    scenario.turn(use("read", path="a"), answer=answer)
    scenario.turn(use("read", path="A "), answer=answer)
    scenario.asks()
    scenario.replies(use("read", path=" a"))
    assert outcome(scenario.decision()) == "stuck"


def test_strict_counts_only_consecutive_calls() -> None:
    scenario, answer = RunScenario(READ, loop=STRICT), make_new_results()
    for path in ("a", "a", "b", "a", "a"):
        assert isinstance(scenario.turn(use("read", path=path), answer=answer), CallModel)


def test_a_poller_is_never_refused_and_is_reminded_ever_more_rarely() -> None:
    scenario = RunScenario(POLL, limits={"max_steps": None, "stuck_steps": 1000})
    warned: list[int] = []
    for number in range(1, 21):
        warned += [number for _ in noted(scenario.turn(use("poll"), answer=same))]
    assert warned == [2, 4, 8, 16]
    assert len(scenario.ran) == 20


def test_a_successful_write_by_another_call_starts_the_counts_over() -> None:
    scenario = RunScenario(READ, WRITE)
    for number in range(6):
        scenario.turn(use("read", path="tests"), answer=same)
        scenario.turn(use("read", path="tests"), answer=same)
        scenario.turn(use("write", text=str(number)))
    assert scenario.blocked == []


def test_a_failed_write_does_not_start_the_counts_over() -> None:
    scenario = RunScenario(READ, WRITE)
    scenario.turn(use("read", path="tests"), answer=same)
    scenario.turn(use("read", path="tests"), answer=same)
    scenario.turn(use("write", text="x"), answer=fails)
    scenario.turn(use("read", path="tests"), answer=same)
    assert scenario.blocked == ["call_4"]


def test_a_write_does_not_start_its_own_count_over() -> None:
    scenario = RunScenario(WRITE)
    for _ in range(3):
        scenario.turn(use("write", text="same"), answer=same)
    assert scenario.blocked == ["call_3"]


def test_a_write_in_the_same_turn_starts_the_count_of_a_later_call_over() -> None:
    scenario = RunScenario(READ, WRITE)
    scenario.turn(use("read", path="tests"), answer=same)
    scenario.turn(use("read", path="tests"), answer=same)
    scenario.turn(use("write", text="a fix"), use("read", path="tests"), answer=same)
    assert scenario.blocked == []
    assert scenario.ran == ["call_1", "call_2", "call_3", "call_4"]


def test_every_open_call_gets_a_result_when_one_call_ends_the_run() -> None:
    scenario, answer = RunScenario(READ), make_timed_results()
    for _ in range(7):
        scenario.turn(use("read", path="a"), answer=answer)
    scenario.asks()
    scenario.replies(use("read", path="b"), use("read", path="a"))
    step = scenario.decision()
    assert isinstance(step, Finish)
    scenario.happens(*step.events)
    assert scenario.state.open_calls == []
    assert {call_id: scenario.errors[call_id].kind for call_id in ("call_8", "call_9")} == {
        "call_8": "skipped",
        "call_9": "skipped",
    }
