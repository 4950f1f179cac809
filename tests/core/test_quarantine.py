"""Which deaths of its workers count against a run, what counts as progress, and when the run is ended."""

import pytest

from tests.core.run_scenario import AGAIN, READ, RunScenario, spec, use
from treadle.core.steps import CallModel
from treadle.core.suspicion import MAX_DOUBT, Suspicion
from treadle.domain import events as e

KILL = spec("kill")
NOTHING = frozenset({""})


def record_death(scenario: RunScenario, *, alone: bool = True, lately: int = 0) -> Suspicion:
    scenario.happens(e.RunRecovered(1, "died", alone, lately))
    return scenario.state.guards.suspicion


@pytest.mark.parametrize(
    ("alone", "in_company", "unexplained", "is_suspect", "is_culprit"),
    [
        (1, 0, 0, False, False),
        (0, 1, 0, False, False),
        (2, 0, 0, True, False),
        (0, 2, 0, True, False),
        (3, 0, 0, True, False),
        (4, 0, 0, False, True),
        (2, 2, 0, False, True),
        (0, 9, 0, True, False),
        (0, 10, 0, False, True),
        (2, 2, 1, True, False),
        (3, 2, 1, False, True),
        (7, 2, 400, True, False),
        (8, 2, 400, False, True),
    ],
)
def test_run_becomes_a_suspect_and_then_the_culprit(
    alone: int, in_company: int, unexplained: int, is_suspect: bool, is_culprit: bool
) -> None:
    found = Suspicion(alone, in_company, unexplained)
    assert (found.is_suspect, found.is_culprit) == (is_suspect, is_culprit)


def test_deaths_of_workers_that_did_not_execute_the_run_raise_the_threshold() -> None:
    found = Suspicion()
    for lately in (1, 2, 5):
        found.count_death(e.RunRecovered(1, "died", True, lately), NOTHING)
    assert (found.deaths_alone, found.unexplained) == (3, 2)
    found.count_death(e.RunRecovered(1, "died", True, 300), NOTHING)
    assert found.unexplained == 296 > MAX_DOUBT
    assert not found.is_culprit


def test_reply_is_progress_after_a_death_in_a_model_call() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    assert record_death(scenario, alone=False).deaths == 1
    scenario.asks()
    scenario.replies(use("read", path="a"))
    assert scenario.state.guards.suspicion.deaths == 0


def test_result_of_the_tool_that_was_running_is_progress_and_that_of_another_is_not() -> None:
    scenario = RunScenario(READ, AGAIN)
    scenario.asks()
    scenario.replies(use("again", "c1"), use("read", "c2", path="a"))
    scenario.happens(e.ToolCallStart("c1", "again", "{}", "key"))
    assert record_death(scenario).activities == {"again"}
    scenario.happens(e.ToolCallEnd("c2", "read", "seen", 1))
    assert scenario.state.guards.suspicion.deaths == 1
    scenario.happens(e.ToolCallEnd("c1", "again", "done", 1))
    assert scenario.state.guards.suspicion.deaths == 0


def test_tool_that_kills_its_worker_is_found_although_its_calls_are_never_repeated() -> None:
    """The model keeps calling it with other arguments. An unknown outcome is not progress, nor are replies and
    results of other tools in the same steps."""
    scenario = RunScenario(READ, KILL)
    for number in range(4):
        assert isinstance(scenario.decision(), CallModel)
        scenario.asks()
        scenario.replies(use("read", f"r{number}", path=str(number)), use("kill", f"k{number}", n=number))
        scenario.happens(e.ToolCallStart(f"r{number}", "read", "{}", "key"))
        scenario.happens(e.ToolCallEnd(f"r{number}", "read", f"seen {number}", 1))
        scenario.happens(e.ToolCallStart(f"k{number}", "kill", "{}", "key"))
        record_death(scenario)
        if number < 3:
            scenario.works()
    assert scenario.state.guards.suspicion.is_culprit
    assert scenario.errors["k0"].kind == "interrupted"


def test_finished_step_without_an_interrupted_call_is_progress() -> None:
    scenario = RunScenario(READ, KILL)
    scenario.asks()
    scenario.replies(use("kill", "k1"))
    scenario.happens(e.ToolCallStart("k1", "kill", "{}", "key"))
    record_death(scenario)
    scenario.works()
    assert scenario.state.guards.suspicion.deaths == 1
    scenario.turn(use("read", path="a"))
    assert scenario.state.guards.suspicion.deaths == 0
