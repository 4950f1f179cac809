"""Tool calls, from the intent to the result."""

from typing import Literal

from treadle.domain.events.vocabulary import EventData, durable, live


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
