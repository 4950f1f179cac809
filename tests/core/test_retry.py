"""Whether and when a failed model call is tried again."""

import pytest

from tests.core.story import START, Story, outcome, waits
from treadle.core.retry import LONGEST_MS, retry_after
from treadle.core.steps import CallModel
from treadle.domain.agents import Retry
from treadle.domain.events import LlmError, LlmRetry, MessageSteered
from treadle.domain.messages import user


def error(attempt: int, retryable: bool = True) -> LlmError:
    return LlmError(1, attempt, "overloaded", "busy", retryable)


def delays(policy: Retry, chance: float = 1.0, asked: float | None = None) -> list[int]:
    """The wait before each retry, until there is none."""
    story, found = Story(retry=policy), list[int]()
    for attempt in range(1, 100):
        story.asks()
        failed = error(attempt)
        retry = retry_after(story.state, failed, asked, story.now, chance)
        if retry is None:
            break
        assert retry.wake_at == pytest.approx(story.now + retry.delay_ms / 1000)
        found.append(retry.delay_ms)
        story.happens(failed, retry)
        story.now = retry.wake_at
    return found


def test_exponential_doubles_from_the_base() -> None:
    assert delays(Retry()) == [1000, 2000, 4000]


def test_exponential_has_full_jitter() -> None:
    assert delays(Retry(), chance=0.5) == [500, 1000, 2000]
    assert delays(Retry(), chance=0.0) == [0, 0, 0]


def test_exponential_does_not_grow_without_bounds() -> None:
    assert delays(Retry(attempts=40))[-1] == LONGEST_MS


def test_linear_gives_0_2_and_4_seconds() -> None:
    assert delays(Retry(schedule="linear"), chance=0.3) == [0, 2000, 4000]


def test_a_wait_that_the_provider_asks_for_is_honoured_in_full() -> None:
    assert delays(Retry(attempts=1), chance=0.0, asked=432.5) == [432_500]


def test_no_attempts_means_no_retry() -> None:
    assert delays(Retry(attempts=0)) == []


def test_what_cannot_be_mended_by_waiting_is_not_tried_again() -> None:
    assert retry_after(Story().state, error(1, retryable=False), 3.0, START, 1.0) is None


def failed_story(wake_in: float = 5.0) -> Story:
    story = Story(limits={"deadline": 60})
    story.asks()
    story.happens(error(1), LlmRetry(1, 1, START + wake_in, round(wake_in * 1000)))
    return story


def test_the_run_waits_until_the_retry_and_then_asks_again_in_the_same_step() -> None:
    story = failed_story()
    wait = waits(story.decision())
    assert (wait.reason, wait.wake_at) == ("retry", START + 5)
    story.now = START + 5
    story.asks()
    assert (story.state.step.number, story.state.step.attempts) == (1, 2)


def test_a_retry_beyond_the_deadline_is_not_waited_for() -> None:
    story = failed_story(wake_in=3600)
    assert waits(story.decision()).wake_at == START + 60


def test_a_message_does_not_wait_for_the_retry() -> None:
    story = failed_story()
    story.happens(MessageSteered(user("hello?"), "queue"))
    assert isinstance(story.decision(), CallModel)


def test_without_a_retry_the_run_ends_with_the_providers_words() -> None:
    story = Story()
    story.asks()
    story.happens(LlmError(1, 1, "auth", "the key is wrong", False))
    assert outcome(story.decision()) == "model_error"


def test_a_reply_starts_the_count_of_failures_over() -> None:
    story = failed_story(wake_in=0)
    story.asks()
    assert story.state.failures == 1
    story.replies(text="here")
    assert story.state.failures == 0
