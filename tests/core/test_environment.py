"""What the environment says changes the next step: a missing model, an open breaker."""

import pytest

from tests.core.run_scenario import RunScenario
from treadle.core.decide import decide
from treadle.core.environment import Environment, OpenBreaker
from treadle.core.steps import CallModel, Step, SwitchModel, UseAlternative
from treadle.domain.events import RunWaiting

BREAKER = OpenBreaker("provider/model", 12.0, has_alternative=False)


def next_step(scenario: RunScenario, missing: str | None = None, breaker: OpenBreaker | None = None) -> Step:
    return decide(scenario.state, Environment(scenario.now, missing=missing, breaker=breaker))


def test_the_model_is_called_if_nothing_prevents_it() -> None:
    assert isinstance(next_step(RunScenario()), CallModel)


def test_a_missing_model_makes_the_run_wait_until_its_deadline() -> None:
    scenario = RunScenario(limits={"deadline": 60.0})
    step = next_step(scenario, missing="No provider `x` is configured.")
    assert step == RunWaiting("unavailable", "No provider `x` is configured.", scenario.state.deadline)


def test_an_open_breaker_makes_the_run_wait_until_it_closes() -> None:
    scenario = RunScenario()
    step = next_step(scenario, breaker=BREAKER)
    assert isinstance(step, RunWaiting)
    assert (step.reason, step.wake_at) == ("breaker", scenario.now + 12.0)
    assert "provider/model" in step.detail


@pytest.mark.parametrize("deadline", [5.0, 60.0])
def test_a_run_does_not_wait_for_a_breaker_beyond_its_deadline(deadline: float) -> None:
    scenario = RunScenario(limits={"deadline": deadline})
    step = next_step(scenario, breaker=BREAKER)
    assert isinstance(step, RunWaiting)
    assert scenario.state.deadline is not None
    assert step.wake_at == min(scenario.now + 12.0, scenario.state.deadline)


def test_an_open_breaker_is_avoided_by_another_model_of_the_same_name_or_a_fallback() -> None:
    other = OpenBreaker("provider/model", 12.0, has_alternative=True)
    assert next_step(RunScenario(), breaker=other) == UseAlternative()
    with_fallback = RunScenario(fallbacks=("provider/second",))
    assert isinstance(next_step(with_fallback, breaker=BREAKER), SwitchModel)
