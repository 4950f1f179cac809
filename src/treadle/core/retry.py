"""What is done about a failed model call: the same again, later or in another way, or another model."""

from typing import Final

from treadle.core.state import RunState
from treadle.domain.agents import Retry
from treadle.domain.durations import in_words
from treadle.domain.events import LlmError, LlmFallback, LlmRetry
from treadle.domain.ids import Instant
from treadle.domain.time_format import second

LINEAR_STEP_MS: Final = 2000
MAX_DELAY_MS: Final = 60_000
MIN_DELAY_SHARE: Final = 0.5
"""Of the exponential delay, at least so much is waited."""
MAX_KEYS: Final = 8
"""So many other keys are tried at once; after that it is a failure like any other."""


def plan_retry(
    state: RunState, error: LlmError, asked_wait: float | None, now: Instant, chance: float
) -> LlmRetry | None:
    """The retry that follows a failure, or None when there is none. `chance` is a number from 0 to 1.

    A wait that the provider asked for is honoured in full, up to the longest that the agent allows; otherwise it
    follows the agent's schedule. With another key, with a shorter bound of the reply, and once in the plainest form
    of the conversation, it is tried at once."""
    if error.next_key and state.keys_tried < MAX_KEYS:
        return LlmRetry(error.step, error.attempt, now, 0)
    if error.repair and error.wants_reasoning:
        return None if state.filled else LlmRetry(error.step, error.attempt, now, 0, filled=True)
    if error.longest_reply is not None and is_lower_reply_limit(state, error.longest_reply):
        return LlmRetry(error.step, error.attempt, now, 0, longest_reply=error.longest_reply)
    if error.repair:
        return None if state.plain else LlmRetry(error.step, error.attempt, now, 0, plain=True)
    policy = state.agent.retry
    if not error.retryable or state.failures >= policy.attempts or (error.once and state.tried_once):
        return None
    if asked_wait is not None and not 0 <= asked_wait <= policy.longest_wait_seconds:
        return None  # another model, or the end of the run, which gives the time
    delay_ms = (
        round(asked_wait * 1000) if asked_wait is not None else _scheduled_delay_ms(policy, state.failures, chance)
    )
    return LlmRetry(error.step, error.attempt, now + delay_ms / 1000, delay_ms)


def is_lower_reply_limit(state: RunState, longest_reply: int) -> bool:
    """Whether a bound of the reply is below the one that is in force."""
    return state.longest_reply is None or longest_reply < state.longest_reply


def describe_long_wait(state: RunState, error: LlmError) -> str:
    """Say that a provider asks for a longer wait than the agent allows, and until when; empty where it does not."""
    allowed, asked = state.agent.retry.longest_wait_seconds, error.asked_wait
    if asked is None or asked <= allowed or not error.retryable:
        return ""
    until = second(state.failed_since + asked)
    limit = f"retry.longest_wait of the agent allows {in_words(allowed)}"
    return f" It asks to wait {in_words(asked)}, until {until}; {limit}."


def plan_fallback(state: RunState, reason: str) -> LlmFallback | None:
    """The next of the agent's fallbacks, which takes over from the model that answers now."""
    left = state.agent.fallbacks[state.fallbacks_used :]
    if not left:
        return None
    provider, model = (state.model.provider, state.model.model) if state.model else ("", state.route)
    return LlmFallback(state.step.number, provider, model, left[0], reason)


def _scheduled_delay_ms(policy: Retry, failures: int, chance: float) -> int:
    match policy.schedule:
        case "exponential":  # with jitter
            longest = min(MAX_DELAY_MS, policy.base_ms * 2**failures)
            return round(longest * (MIN_DELAY_SHARE + (1 - MIN_DELAY_SHARE) * chance))
        case "linear":
            return LINEAR_STEP_MS * failures
