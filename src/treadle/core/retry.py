"""Reactions to a failed model call: retry, later or in another way, or fall back to another model."""

from typing import Final

from treadle.core.state import RunState
from treadle.domain.agents import Retry
from treadle.domain.durations import format_duration
from treadle.domain.events import FallbackCause, LlmError, LlmFallback, LlmRetry
from treadle.domain.ids import Instant
from treadle.domain.time_format import format_second

LINEAR_STEP_MS: Final = 2000
MAX_DELAY_MS: Final = 60_000
MIN_DELAY_SHARE: Final = 0.5
"""Minimum share of the exponential delay."""
MAX_KEYS: Final = 8
"""Maximum number of other keys that are tried at once. After that a failure counts like any other."""


def plan_retry(
    state: RunState, error: LlmError, requested_seconds: float | None, now: Instant, random: float
) -> LlmRetry | None:
    """Return the retry after a failure, or None. `chance` is a number from 0 to 1.

    A delay that the provider requested is honoured in full, up to the maximum that the agent allows; otherwise the
    agent's schedule applies. A retry with another key, without the output schema, with a lower reply limit, or once
    with the plainest form of the transcript happens at once."""
    if error.next_key and state.attempts.keys_tried < MAX_KEYS:
        return LlmRetry(error.step, error.attempt, now, 0)
    if error.refuses_schema and not state.attempts.unconstrained:
        return LlmRetry(error.step, error.attempt, now, 0, unconstrained=True)
    if error.repair and error.wants_reasoning:
        return None if state.attempts.filled else LlmRetry(error.step, error.attempt, now, 0, filled=True)
    if error.longest_reply is not None and is_lower_reply_limit(state, error.longest_reply):
        return LlmRetry(error.step, error.attempt, now, 0, longest_reply=error.longest_reply)
    if error.repair:
        return None if state.attempts.plain else LlmRetry(error.step, error.attempt, now, 0, plain=True)
    policy = state.agent.retry
    if (
        not error.retryable
        or state.attempts.failures >= policy.attempts
        or (error.once and state.attempts.has_retried_once)
    ):
        return None
    if requested_seconds is not None and not 0 <= requested_seconds <= policy.longest_wait_seconds:
        return None  # use another model, or end the run, which reports the time
    delay_ms = (
        round(requested_seconds * 1000)
        if requested_seconds is not None
        else _compute_delay_ms(policy, state.attempts.failures, random)
    )
    return LlmRetry(error.step, error.attempt, now + delay_ms / 1000, delay_ms)


def is_lower_reply_limit(state: RunState, longest_reply: int) -> bool:
    """Return whether a reply limit is lower than the current one."""
    return state.attempts.longest_reply is None or longest_reply < state.attempts.longest_reply


def describe_long_wait(state: RunState, error: LlmError) -> str:
    """Return a sentence if the provider requested a longer wait than the agent allows, else ""."""
    allowed, requested = state.agent.retry.longest_wait_seconds, error.asked_wait
    if requested is None or requested <= allowed or not error.retryable:
        return ""
    until = format_second(state.attempts.failed_since + requested)
    limit = f"retry.longest_wait of the agent allows {format_duration(allowed)}"
    return f" It asks to wait {format_duration(requested)}, until {until}; {limit}."


def plan_fallback(
    state: RunState, reason: str, cause: FallbackCause, breaker_seconds: float | None = None
) -> LlmFallback | None:
    """Return the switch to the agent's next fallback model, or None if none is left."""
    fallbacks = state.agent.fallbacks[state.attempts.fallbacks_used :]
    if not fallbacks:
        return None
    provider, model = (state.model.provider, state.model.model) if state.model else ("", state.attempts.route)
    return LlmFallback(
        step=state.step.number,
        provider=provider,
        model=model,
        to=fallbacks[0],
        reason=reason,
        cause=cause,
        breaker_seconds=breaker_seconds,
    )


def _compute_delay_ms(policy: Retry, failures: int, random: float) -> int:
    match policy.schedule:
        case "exponential":  # with jitter
            longest = min(MAX_DELAY_MS, policy.base_ms * 2**failures)
            return round(longest * (MIN_DELAY_SHARE + (1 - MIN_DELAY_SHARE) * random))
        case "linear":
            return LINEAR_STEP_MS * failures
