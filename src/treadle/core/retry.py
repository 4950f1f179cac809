"""What is done about a failed model call: the same again, later or in another way, or another model."""

from typing import Final

from treadle.core.state import RunState
from treadle.domain.agents import Retry
from treadle.domain.events import LlmError, LlmFallback, LlmRetry
from treadle.domain.identity import Instant

LINEAR_STEP_MS: Final = 2000
LONGEST_MS: Final = 60_000
LONGEST_ASKED: Final = 3600.0
"""Seconds; a provider that asks for more is not waited for."""
MOST_KEYS: Final = 8
"""So many other keys are tried at once; after that it is a failure like any other."""


def retry_after(
    state: RunState, error: LlmError, asked_wait: float | None, now: Instant, chance: float
) -> LlmRetry | None:
    """The retry that follows a failure, or None when there is none. `chance` is a number from 0 to 1.

    A wait that the provider asked for is honoured in full; otherwise it follows the agent's schedule. With another
    key, and once in the plainest form of the conversation, it is tried at once."""
    if error.next_key and state.keys_tried < MOST_KEYS:
        return LlmRetry(error.step, error.attempt, now, 0)
    if error.repair and error.wants_reasoning:
        return None if state.filled else LlmRetry(error.step, error.attempt, now, 0, filled=True)
    if error.repair:
        return None if state.plain else LlmRetry(error.step, error.attempt, now, 0, plain=True)
    policy = state.agent.retry
    if not error.retryable or state.failures >= policy.attempts:
        return None
    if asked_wait is not None and not 0 <= asked_wait <= LONGEST_ASKED:
        return None  # nobody waits that long: another model, or the provider's own words
    delay_ms = round(asked_wait * 1000) if asked_wait is not None else _scheduled(policy, state.failures, chance)
    return LlmRetry(error.step, error.attempt, now + delay_ms / 1000, delay_ms)


def fallback_after(state: RunState, reason: str) -> LlmFallback | None:
    """The next of the agent's fallbacks, which takes over from the model that answers now."""
    left = state.agent.fallbacks[state.fallbacks_used :]
    if not left:
        return None
    provider, model = (state.model.provider, state.model.model) if state.model else ("", state.route)
    return LlmFallback(state.step.number, provider, model, left[0], reason)


def _scheduled(policy: Retry, failures: int, chance: float) -> int:
    match policy.schedule:
        case "exponential":  # with full jitter
            return round(min(LONGEST_MS, policy.base_ms * 2**failures) * chance)
        case "linear":
            return LINEAR_STEP_MS * failures
