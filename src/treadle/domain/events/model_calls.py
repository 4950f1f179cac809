"""Events of steps and model calls."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant
from treadle.domain.messages import Part
from treadle.domain.runs import Usage

StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal", "interrupted", "other"]


@durable("step_start")
class StepStart(EventData, frozen=True):
    """A step begins."""

    step: int


@durable("step_end")
class StepEnd(EventData, frozen=True):
    """A step has ended: one model call with its tool calls."""

    step: int
    attempts: int
    calls: int
    input_tokens: int
    output_tokens: int
    duration_ms: int


@durable("llm_request")
class LlmRequest(EventData, frozen=True):
    """The intent to send a request. Its exact content is the projection of the journal up to this event."""

    step: int
    attempt: int
    provider: str
    model: str
    messages: int
    """Number of messages of the conversation that are sent."""
    tools_offered: bool = True
    repeats_lost: bool = False
    """The reply to the request before was lost in a crash; the provider may charge for both."""
    input_estimate: int = 0
    """Estimated tokens of the request."""
    cost_estimate: float | None = None
    """Maximum cost of the call in dollars, with the longest reply. Null: no price is known."""
    preface: str = ""
    """Time and place, before the user message that this request adds to the conversation."""


@durable("llm_response")
class LlmResponse(EventData, frozen=True):
    """The complete reply."""

    step: int
    attempt: int
    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage
    duration_ms: int
    first_token_ms: int | None = None
    raw_stop: str | None = None
    """The provider's own stop reason, if `stop` is `other`, or `max_tokens` and the provider paused the reply."""
    cost: float | None = None
    """Dollars; None: no price is known."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Call IDs with the secrets whose values their arguments held. The values were removed; the calls fail."""
    dropped_calls: tuple[str, ...] = ()
    """The tools whose calls are left out and not run, because the reply was truncated or filtered."""
    excess_calls: int = 0
    """Number of calls beyond the agent's `limits.max_calls`. They are left out and not run."""
    refusal: str = ""
    """The provider's word for the end, if `stop` is `refusal` and the word says more than that."""
    window_full: bool = False
    """The reply was cut because the context window is full."""


ModelErrorKind = Literal[
    "unreachable", "timeout", "rate_limited", "overloaded", "server", "auth", "not_found", "invalid_request",
    "billing", "malformed", "adapter", "overflow",
]  # fmt: skip


@durable("llm_error")
class LlmError(EventData, frozen=True):
    """A request failed. Text that it had streamed is not part of the conversation."""

    step: int
    attempt: int
    kind: ModelErrorKind
    message: str
    retryable: bool
    status: int | None = None
    duration_ms: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    """Dollars; None: no price is known."""
    compact: bool = False
    """The conversation is too long for the model."""
    repair: bool = False
    """The provider rejects the structure of the conversation."""
    next_key: bool = False
    """Another key of the provider is ready."""
    next_model: bool = False
    """A fallback model may succeed."""
    wants_reasoning: bool = False
    """The provider rejects the conversation because reasoning is missing."""
    refuses_schema: bool = False
    """The provider rejects the request because it carries the output schema."""
    once: bool = False
    """A single retry may help."""
    longest_reply: int | None = None
    """The requested reply limit is too high. The provider should accept this many tokens."""
    guessed: bool = False
    """The provider does not say that the conversation is too long. It is assumed to be, because it is large."""
    asked_wait: float | None = None
    """Seconds that the provider asks to wait."""
    filtered: bool = False
    """A content filter of the provider rejects the conversation."""
    no_fallback: str = ""
    """Why no fallback could be used."""


@durable("llm_retry")
class LlmRetry(EventData, frozen=True):
    """The failed request will be sent again, not before `wake_at`."""

    step: int
    attempt: int
    wake_at: Instant
    delay_ms: int
    plain: bool = False
    """From now on requests have no reasoning: the provider rejected the conversation with it."""
    filled: bool = False
    """From now on requests have a blank where reasoning is missing: the provider rejected them without it."""
    unconstrained: bool = False
    """From now on requests do not carry the output schema: the provider rejected it. It is in the prompt."""
    longest_reply: int | None = None
    """From now on replies have at most this many tokens: the provider rejected a higher limit."""


FallbackCause = Literal["failed", "breaker", "unresolved"]
"""failed: the model call failed. breaker: the model's circuit breaker is open. unresolved: the model is not
available."""


@durable("llm_fallback")
class LlmFallback(EventData, frozen=True):
    """A fallback model is used for the rest of the run."""

    step: int
    provider: str
    model: str
    to: str
    """The name of the fallback, as in the agent's `fallbacks`."""
    reason: str
    cause: FallbackCause = "failed"
    breaker_seconds: float | None = None
    """Seconds for which the circuit breaker stays open."""


@durable("breaker_opened", stream="system")
class BreakerOpened(EventData, frozen=True):
    """The model failed too often. No run of this process calls it for a while."""

    provider: str
    model: str


@durable("breaker_closed", stream="system")
class BreakerClosed(EventData, frozen=True):
    """The model answers again."""

    provider: str
    model: str


@live("attempt_reset")
class AttemptReset(EventData, frozen=True):
    """Discard the text of the previous attempt. Another attempt starts from the beginning."""

    request: int
    attempt: int


@live("token")
class Token(EventData, frozen=True):
    """Text as it is written. `request` is the sequence of its `llm_request`; `offset` counts characters."""

    request: int
    attempt: int
    offset: int
    text: str


@live("thinking")
class ThinkingDelta(EventData, frozen=True):
    """Reasoning as it is written."""

    request: int
    attempt: int
    offset: int
    text: str


@live("tool_call_delta")
class ToolCallDelta(EventData, frozen=True):
    """A tool call as it is written: a fragment of its arguments."""

    request: int
    attempt: int
    index: int
    offset: int
    name: str
    arguments: str
