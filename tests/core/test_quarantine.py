"""Which deaths of its workers count against a run, what counts as progress, and when the run is ended."""

import pytest

from tests.core.run_scenario import AGAIN, READ, RunScenario, spec, use
from treadle.core.steps import CallModel
from treadle.core.suspicion import MAX_DOUBT, Suspect, Suspicion, choose_members
from treadle.domain import events as e
from treadle.domain.ids import RunId

KILL = spec("kill")
NOTHING = frozenset({""})


def record_death(scenario: RunScenario, *, lately: int = 0) -> Suspicion:
    scenario.happens(e.RunRecovered(1, "died", False, lately))
    return scenario.state.guards.suspicion


@pytest.mark.parametrize(
    ("deaths", "in_company", "alone", "unexplained", "is_suspect", "is_culprit"),
    [
        (1, 0, 0, 0, False, False),
        (2, 0, 0, 0, True, False),
        (50, 0, 0, 0, True, False),
        (2, 50, 0, 0, True, False),
        (2, 5, 2, 0, True, False),
        (2, 0, 3, 0, False, True),
        (0, 0, 3, 0, False, True),
        (2, 4, 3, 1, True, False),
        (2, 4, 4, 1, False, True),
        (2, 0, 8, 400, True, False),
        (2, 0, 9, 400, False, True),
    ],
)
def test_only_deaths_alone_in_a_trial_count_towards_quarantine(
    deaths: int, in_company: int, alone: int, unexplained: int, is_suspect: bool, is_culprit: bool
) -> None:
    found = Suspicion(deaths, in_company, alone, unexplained)
    assert (found.is_suspect, found.is_culprit) == (is_suspect, is_culprit)


def test_death_counts_according_to_the_trial_in_the_journal() -> None:
    found = Suspicion()
    for trial in (None, None, e.TrialStarted("trl_1", 8), None, e.TrialStarted("trl_2", 1)):
        found.trial = trial
        found.count_death(e.RunRecovered(1, "died", False), NOTHING)
    assert (found.deaths, found.deaths_in_company, found.deaths_alone) == (3, 1, 1)
    assert found.trial is None, "a death before the next trial counts against no member"
    assert found.group == e.TrialStarted("trl_2", 1)
    found.clear()
    assert found == Suspicion()


def test_failure_of_the_engine_counts_only_against_its_run() -> None:
    found = Suspicion()
    for _ in range(3):
        assert not found.is_culprit
        found.count_death(e.RunRecovered(1, "failed", cause="engine_failed"), NOTHING)
    assert found.is_culprit


def test_deaths_of_workers_that_did_not_execute_the_run_raise_the_threshold() -> None:
    found = Suspicion()
    for lately in (1, 2, 5):
        found.trial = e.TrialStarted("trl_1", 1)
        found.count_death(e.RunRecovered(1, "died", True, lately), NOTHING)
    assert (found.deaths_alone, found.unexplained, found.is_culprit) == (3, 2, False)
    found.trial = e.TrialStarted("trl_1", 1)
    found.count_death(e.RunRecovered(1, "died", True, 300), NOTHING)
    assert found.unexplained == 296 > MAX_DOUBT
    assert not found.is_culprit


WIDE, NARROW = e.TrialStarted("trl_wide", 8), e.TrialStarted("trl_narrow", 4)


def make_suspects(count: int, group: e.TrialStarted | None = None, *, calling: int = 0) -> list[Suspect]:
    name = group.trial if group else "new"
    return [Suspect(RunId(f"run_{name}_{number}"), 0, group, number < calling) for number in range(count)]


@pytest.mark.parametrize(
    ("suspects", "has_passed", "chosen"),
    [
        (make_suspects(9), False, make_suspects(5)),
        (make_suspects(9), True, make_suspects(9)),
        (make_suspects(1), False, make_suspects(1)),
        ([*make_suspects(9), *make_suspects(4, NARROW), *make_suspects(8, WIDE)], False, make_suspects(2, NARROW)),
        ([*make_suspects(9), *make_suspects(8, WIDE)], True, make_suspects(8, WIDE)),
        (make_suspects(9, calling=2), False, make_suspects(2, calling=2)),
        (make_suspects(9, calling=7), False, make_suspects(5, calling=5)),
        (make_suspects(9, calling=9), True, make_suspects(9, calling=9)),
        ([Suspect(RunId("run_1"), 2, NARROW), *make_suspects(2)], False, make_suspects(1)),
        ([Suspect(RunId("run_1"), 2), Suspect(RunId("run_2"), 1)], True, [Suspect(RunId("run_2"), 1)]),
    ],
)
def test_trial_has_half_of_the_suspects_that_died_together(
    suspects: list[Suspect], has_passed: bool, chosen: list[Suspect]
) -> None:
    assert choose_members(suspects, has_passed) == chosen


def test_reply_is_progress_after_a_death_in_a_model_call() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    assert record_death(scenario).total == 1
    scenario.asks()
    scenario.replies(use("read", path="a"))
    assert scenario.state.guards.suspicion.total == 0


def test_result_of_the_tool_that_was_running_is_progress_and_that_of_another_is_not() -> None:
    scenario = RunScenario(READ, AGAIN)
    scenario.asks()
    scenario.replies(use("again", "c1"), use("read", "c2", path="a"))
    scenario.happens(e.ToolCallStart("c1", "again", "{}", "key"))
    assert record_death(scenario).activities == {"again"}
    scenario.happens(e.ToolCallEnd("c2", "read", "seen", 1))
    assert scenario.state.guards.suspicion.total == 1
    scenario.happens(e.ToolCallEnd("c1", "again", "done", 1))
    assert scenario.state.guards.suspicion.total == 0


def test_tool_that_kills_its_worker_is_found_although_its_calls_are_never_repeated() -> None:
    """The model keeps calling it with other arguments. An unknown outcome is not progress, nor are replies and
    results of other tools in the same steps."""
    scenario = RunScenario(READ, KILL)
    for number in range(5):
        assert isinstance(scenario.decision(), CallModel)
        scenario.asks()
        scenario.replies(use("read", f"r{number}", path=str(number)), use("kill", f"k{number}", n=number))
        scenario.happens(e.ToolCallStart(f"r{number}", "read", "{}", "key"))
        scenario.happens(e.ToolCallEnd(f"r{number}", "read", f"seen {number}", 1))
        scenario.happens(e.ToolCallStart(f"k{number}", "kill", "{}", "key"))
        record_death(scenario)
        if number in (1, 2, 3):
            scenario.happens(e.TrialStarted(f"trl_{number}", 1))
        if number < 4:
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
    assert scenario.state.guards.suspicion.total == 1
    scenario.turn(use("read", path="a"))
    assert scenario.state.guards.suspicion.total == 0
