"""Whether and when a failed model call is tried again."""

import pytest

from tests.core.run_scenario import START, RunScenario, outcome, waits
from treadle.core.context.projection import project
from treadle.core.retry import MAX_DELAY_MS, plan_retry
from treadle.core.steps import CallModel, Finish
from treadle.domain.agents import ModelSettings, Retry
from treadle.domain.events import LlmError, LlmRetry, MessageSteered
from treadle.domain.messages import user
from treadle.domain.models import Profile


def error(attempt: int, retryable: bool = True) -> LlmError:
    return LlmError(1, attempt, "overloaded", "busy", retryable)


def delays(policy: Retry, chance: float = 1.0, asked: float | None = None) -> list[int]:
    """Return the wait before each retry, until there are no more."""
    scenario, found = RunScenario(retry=policy), list[int]()
    for attempt in range(1, 100):
        scenario.asks()
        failed = error(attempt)
        retry = plan_retry(scenario.state, failed, asked, scenario.now, chance)
        if retry is None:
            break
        assert retry.wake_at == pytest.approx(scenario.now + retry.delay_ms / 1000)
        found.append(retry.delay_ms)
        scenario.happens(failed, retry)
        scenario.now = retry.wake_at
    return found


def test_exponential_backoff_doubles_from_one_second() -> None:
    assert delays(Retry()) == [1000, 2000, 4000]


def test_jitter_leaves_at_least_half_of_the_exponential_delay() -> None:
    assert delays(Retry(), chance=0.5) == [750, 1500, 3000]
    assert delays(Retry(), chance=0.0) == [500, 1000, 2000]


def test_the_agent_sets_the_longest_wait() -> None:
    assert delays(Retry(attempts=1), asked=3600.0) == [3_600_000]
    assert delays(Retry(attempts=1), asked=3600.1) == []
    assert delays(Retry(attempts=1, longest_wait="2h"), asked=7200.0) == [7_200_000]
    assert delays(Retry(attempts=1, longest_wait=30), asked=31.0) == []


def test_a_wait_that_is_too_long_ends_the_run_and_reports_the_time() -> None:
    scenario = RunScenario(retry=Retry(longest_wait="10m"))
    scenario.asks()
    failed = LlmError(1, 1, "rate_limited", "slow down.", True, asked_wait=7500.0)
    assert plan_retry(scenario.state, failed, 7500.0, scenario.now, 1.0) is None
    scenario.happens(failed)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.kind == "model_error"
    assert "It asks to wait 2 h 5 min, until 1970-01-01 02:21:40 UTC" in step.outcome.reason
    assert "retry.longest_wait of the agent allows 10 min" in step.outcome.reason


def test_a_wait_reports_the_time_of_the_next_attempt() -> None:
    assert waits(failed_story().decision()).detail == "attempt 2 of the model call, at 1970-01-01 00:16:45 UTC"


def test_a_single_retry_happens_once() -> None:
    scenario = RunScenario()
    failed = LlmError(1, 1, "invalid_request", "cannot read the call", True, once=True)
    scenario.asks()
    first = plan_retry(scenario.state, failed, None, scenario.now, 0.0)
    assert first is not None
    scenario.happens(failed, first)
    scenario.now = first.wake_at
    scenario.asks()
    assert plan_retry(scenario.state, failed, None, scenario.now, 0.0) is None


def test_a_reply_limit_that_is_too_large_is_lowered() -> None:
    scenario = RunScenario(model_settings=ModelSettings(max_tokens=20_000))
    scenario.asks()
    failed = LlmError(1, 1, "invalid_request", "max_tokens is too large", False, longest_reply=8192)
    retry = plan_retry(scenario.state, failed, None, scenario.now, 0.0)
    assert retry is not None
    assert (retry.longest_reply, retry.delay_ms) == (8192, 0)
    scenario.happens(failed, retry)
    scenario.asks()
    assert project(scenario.state, True, Profile()).settings.max_tokens == 8192
    assert plan_retry(scenario.state, failed, None, scenario.now, 0.0) is None, "the limit is not lower than before"


def test_exponential_backoff_is_bounded() -> None:
    assert delays(Retry(attempts=40))[-1] == MAX_DELAY_MS


def test_linear_backoff_waits_0_2_and_4_seconds() -> None:
    assert delays(Retry(schedule="linear"), chance=0.3) == [0, 2000, 4000]


def test_a_wait_that_the_provider_asks_for_is_honoured_in_full() -> None:
    assert delays(Retry(attempts=1), chance=0.0, asked=432.5) == [432_500]


def test_no_attempts_means_no_retry() -> None:
    assert delays(Retry(attempts=0)) == []


def test_an_error_that_waiting_cannot_fix_is_not_retried() -> None:
    assert plan_retry(RunScenario().state, error(1, retryable=False), 3.0, START, 1.0) is None


def failed_story(wake_in: float = 5.0) -> RunScenario:
    scenario = RunScenario(limits={"deadline": 60})
    scenario.asks()
    scenario.happens(error(1), LlmRetry(1, 1, START + wake_in, round(wake_in * 1000)))
    return scenario


def test_the_run_waits_until_the_retry_and_then_asks_again_in_the_same_step() -> None:
    scenario = failed_story()
    wait = waits(scenario.decision())
    assert (wait.reason, wait.wake_at) == ("retry", START + 5)
    scenario.now = START + 5
    scenario.asks()
    assert (scenario.state.step.number, scenario.state.step.attempts) == (1, 2)


def test_a_retry_beyond_the_deadline_is_not_waited_for() -> None:
    scenario = failed_story(wake_in=3600)
    assert waits(scenario.decision()).wake_at == START + 60


def test_a_message_does_not_wait_for_the_retry() -> None:
    scenario = failed_story()
    scenario.happens(MessageSteered(user("hello?"), "steer"))
    assert isinstance(scenario.decision(), CallModel)


def test_without_a_retry_the_run_ends_with_the_providers_message() -> None:
    scenario = RunScenario()
    scenario.asks()
    scenario.happens(LlmError(1, 1, "auth", "the key is wrong", False))
    assert outcome(scenario.decision()) == "model_error"


def test_a_reply_starts_the_count_of_failures_over() -> None:
    scenario = failed_story(wake_in=0)
    scenario.asks()
    assert scenario.state.attempts.failures == 1
    scenario.replies(text="here")
    assert scenario.state.attempts.failures == 0
