"""Everything that can happen to a run, each defined once: its name, its data, whether it is kept, its stream.

A durable event is committed before anyone sees it. A live event is seen at once and never stored; it carries
the sequence of the durable event it belongs to. The envelope is `Event`, in `envelope.py`."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.identity import Instant, RunId
from treadle.domain.messages import Message, Part
from treadle.domain.runs import Metrics, OutcomeKind, Status, Usage
from treadle.domain.tools import ToolSpec

Stream = Literal["run", "agent", "system"]
StopReason = Literal["end_turn", "max_tokens", "tool_use", "refusal", "interrupted", "other"]


class EventData(Struct, frozen=True, omit_defaults=True, gc=False):
    """What is particular to one type of event."""


class EventType(NamedTuple):
    name: str
    data: type[EventData]
    durable: bool
    stream: Stream


VOCABULARY: dict[str, EventType] = {}
"""Every type by its name, in the order of this file."""

NAMES: dict[type[EventData], str] = {}

_Data = TypeVar("_Data", bound=type[EventData])


def _defines(name: str, stream: Stream, durable: bool) -> Callable[[_Data], _Data]:
    def define(data: _Data) -> _Data:
        VOCABULARY[name] = EventType(name, data, durable, stream)
        NAMES[data] = name
        return data

    return define


def durable(name: str, stream: Stream = "run") -> Callable[[_Data], _Data]:
    """Name a type of event that is committed before anyone sees it."""
    return _defines(name, stream, durable=True)


def live(name: str, stream: Stream = "run") -> Callable[[_Data], _Data]:
    """Name a type of event that is seen at once and never stored."""
    return _defines(name, stream, durable=False)


class Unknown(EventData, frozen=True):
    """An event of a type, or with content, that this version does not know. Its bytes are kept as they are."""


# ── The life of a run ──────────────────────────────────────────────────────────────────────────────


@durable("run_queued")
class RunQueued(EventData, frozen=True):
    """A run was asked for. It holds the agent as it was then, overrides applied."""

    agent: AgentSpec
    resumed_from: RunId | None = None


@durable("user_message")
class UserMessage(EventData, frozen=True):
    message: Message


@durable("run_start")
class RunStart(EventData, frozen=True):
    """The first worker took the run up and found everything it needs."""

    tools: tuple[ToolSpec, ...]


@durable("model_resolved")
class ModelResolved(EventData, frozen=True):
    """Which model answers, and why that one."""

    provider: str
    model: str
    api_mode: str
    reason: str
    route: str = ""
    """The name that was resolved: the agent's model, a tier of its routing or one of its fallbacks."""


WaitReason = Literal["retry", "interrupted", "unavailable", "breaker"]


@durable("run_waiting")
class RunWaiting(EventData, frozen=True):
    """Nothing is held in memory until it is woken: by a delivery, or at `wake_at`."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None


@durable("run_recovered")
class RunRecovered(EventData, frozen=True):
    """The worker before died, lost its lease or failed; the run was taken up again."""

    epoch: int
    reason: str


@durable("run_quarantined")
class RunQuarantined(EventData, frozen=True):
    """The run was taken up again and again and never got on; it is not tried any more."""

    recoveries: int


@live("run_fenced", stream="system")
class RunFenced(EventData, frozen=True):
    """A worker found that another owns its run. What it wrote was refused; its tools were stopped."""

    epoch: int


@durable("run_end")
class RunEnd(EventData, frozen=True):
    """The last event of every run."""

    status: Status
    outcome: OutcomeKind
    metrics: Metrics
    text: str = ""
    """What was produced, also where the run did not complete."""
    reason: str = ""
    next: str = ""
    """Whether and how to go on."""
    stopped: tuple[str, ...] = ()
    """The calls that were under way and had to be stopped."""


# ── Steps and model calls ──────────────────────────────────────────────────────────────────────────


@durable("step_start")
class StepStart(EventData, frozen=True):
    step: int


@durable("step_end")
class StepEnd(EventData, frozen=True):
    """One turn of the model and the calls it asked for are done."""

    step: int
    attempts: int
    calls: int
    input_tokens: int
    output_tokens: int
    duration_ms: int


@durable("llm_request")
class LlmRequest(EventData, frozen=True):
    """A request is about to be sent. Its exact content is the projection of the journal up to here."""

    step: int
    attempt: int
    provider: str
    model: str
    messages: int
    """How many messages of the conversation are sent."""
    tools_offered: bool = True
    repeats_lost: bool = False
    """The reply to the request before was lost in a crash; the provider may charge for both."""
    input_estimate: int = 0
    """Tokens that are about to be sent, as far as we can tell."""
    cost_estimate: float | None = None
    """Dollars that the call may cost at most: what is sent, and the longest reply. None: no price is known."""


@durable("llm_response")
class LlmResponse(EventData, frozen=True):
    """The whole reply."""

    step: int
    attempt: int
    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage
    duration_ms: int
    first_token_ms: int | None = None
    raw_stop: str | None = None
    """The provider's own word, where ours is `other`."""
    cost: float | None = None
    """Dollars; None: no price is known."""


ModelErrorKind = Literal[
    "unreachable", "timeout", "rate_limited", "overloaded", "server", "auth", "not_found", "invalid_request",
    "billing", "malformed", "adapter", "overflow",
]  # fmt: skip


@durable("llm_error")
class LlmError(EventData, frozen=True):
    """A request failed. What it said until then is not part of the conversation."""

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
    """The provider finds fault with the shape of the conversation."""
    next_key: bool = False
    """Another key of the provider is ready."""
    next_model: bool = False
    """Another model may well do what this one cannot."""


@durable("llm_retry")
class LlmRetry(EventData, frozen=True):
    """The failed request will be sent again, not before `wake_at`."""

    step: int
    attempt: int
    wake_at: Instant
    delay_ms: int
    plain: bool = False
    """From now on without reasoning: the provider has refused the conversation with it."""


@durable("llm_fallback")
class LlmFallback(EventData, frozen=True):
    """Another model takes the run over, for good."""

    step: int
    provider: str
    model: str
    to: str
    """The name of the one that takes over, as the agent's `fallbacks` give it."""
    reason: str


@durable("breaker_opened", stream="system")
class BreakerOpened(EventData, frozen=True):
    """The model failed too often; it is left alone for a while, by all runs of this process."""

    provider: str
    model: str


@durable("breaker_closed", stream="system")
class BreakerClosed(EventData, frozen=True):
    """The model answers again."""

    provider: str
    model: str


@live("attempt_reset")
class AttemptReset(EventData, frozen=True):
    """Text shown for this attempt is void; another attempt begins from nothing."""

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
    request: int
    attempt: int
    offset: int
    text: str


@live("tool_call_delta")
class ToolCallDelta(EventData, frozen=True):
    """A call as it is written: a fragment of its arguments."""

    request: int
    attempt: int
    index: int
    offset: int
    name: str
    arguments: str


# ── Tool calls ─────────────────────────────────────────────────────────────────────────────────────


@durable("tool_call_start")
class ToolCallStart(EventData, frozen=True):
    """The intent, committed before the tool runs."""

    call_id: str
    name: str
    arguments: str
    idempotency_key: str
    attempt: int = 1


@live("tool_call_progress")
class ToolCallProgress(EventData, frozen=True):
    start: int
    """The sequence of its `tool_call_start`."""
    call_id: str
    offset: int
    text: str


@durable("tool_call_end")
class ToolCallEnd(EventData, frozen=True):
    call_id: str
    name: str
    content: str
    duration_ms: int


CallErrorKind = Literal[
    "unknown_tool", "invalid_arguments", "failed", "timeout", "interrupted", "cancelled", "skipped"
]


@durable("tool_call_error")
class ToolCallError(EventData, frozen=True):
    """The call has no good result; `content` is what the model is told."""

    call_id: str
    name: str
    kind: CallErrorKind
    content: str
    duration_ms: int = 0


GuardName = Literal["loop", "stuck"]


@durable("tool_call_blocked")
class ToolCallBlocked(EventData, frozen=True):
    """A guard refused the call; `content` is what the model is told."""

    call_id: str
    name: str
    guard: GuardName
    content: str


# ── Guards ─────────────────────────────────────────────────────────────────────────────────────────


@durable("loop_warning")
class LoopWarning(EventData, frozen=True):
    """A call repeats itself. `note` is for the model."""

    tool: str
    key: str
    count: int
    note: str


StuckKind = Literal["failing_tool", "no_new_information"]


@durable("stuck_detected")
class StuckDetected(EventData, frozen=True):
    kind: StuckKind
    count: int
    tool: str | None = None


RecoveryStage = Literal["note", "refuse_tool", "report"]


@durable("recovery_action")
class RecoveryAction(EventData, frozen=True):
    """What was done about being stuck: a note, then a tool refused for a turn, then a turn without tools."""

    stage: RecoveryStage
    note: str
    tool: str | None = None


@durable("empty_turn")
class EmptyTurn(EventData, frozen=True):
    """The model said nothing and called nothing."""

    count: int
    note: str


@durable("continuation")
class Continuation(EventData, frozen=True):
    """The reply was cut at the model's token limit and is being continued."""

    count: int
    note: str


@durable("output_rejected")
class OutputRejected(EventData, frozen=True):
    """The answer does not fit the schema that was asked for."""

    count: int
    error: str
    note: str


@durable("budget_hint")
class BudgetHint(EventData, frozen=True):
    """The agent asked to be told when a limit comes near."""

    percent: int
    note: str


# ── Deliveries: anyone may append these, without owning the run ────────────────────────────────────


SteerMode = Literal["queue", "interrupt"]


@durable("message_steered")
class MessageSteered(EventData, frozen=True):
    """A message for a run under way: at its next step, or at once."""

    message: Message
    mode: SteerMode


@durable("run_interrupted")
class RunInterrupted(EventData, frozen=True):
    """Stop what is under way and wait until asked to go on."""

    reason: str


@durable("resume_requested")
class ResumeRequested(EventData, frozen=True):
    """Go on with a run that waits."""


@durable("cancel_requested")
class CancelRequested(EventData, frozen=True):
    reason: str


Delivery = MessageSteered | RunInterrupted | ResumeRequested | CancelRequested

# ── Streams ────────────────────────────────────────────────────────────────────────────────────────


@live("stream_reset", stream="system")
class StreamReset(EventData, frozen=True):
    """The reader fell behind and was cut off. Subscribe again after `after`; nothing is lost."""

    after: int
    reason: str
