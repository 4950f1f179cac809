"""Tool calls, from the intent to the result."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable, live


@durable("tool_call_start")
class ToolCallStart(EventData, frozen=True):
    """The intent to run a tool call, committed before the tool runs."""

    call_id: str
    name: str
    arguments: str
    idempotency_key: str
    attempt: int = 1


@live("tool_call_progress")
class ToolCallProgress(EventData, frozen=True):
    """Progress of a tool call."""

    start: int
    """The sequence of its `tool_call_start`."""
    call_id: str
    offset: int
    text: str


@durable("tool_call_end")
class ToolCallEnd(EventData, frozen=True):
    """A tool call has ended."""

    call_id: str
    name: str
    content: str
    duration_ms: int
    exit_code: int | None = None
    truncated: bool = False
    """The middle is left out; the whole text can be recalled by the call's id."""


CallErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "failed",
    "timeout",
    "interrupted",
    "cancelled",
    "skipped",
    "denied",
    "too_many",
]


@durable("tool_call_error")
class ToolCallError(EventData, frozen=True):
    """A tool call failed. `content` is what the model is told."""

    call_id: str
    name: str
    kind: CallErrorKind
    content: str
    duration_ms: int = 0
    exit_code: int | None = None
    truncated: bool = False


GuardName = Literal["loop", "stuck"]


@durable("tool_call_blocked")
class ToolCallBlocked(EventData, frozen=True):
    """A guard rejected the call. `content` is what the model is told."""

    call_id: str
    name: str
    guard: GuardName
    content: str


@durable("result_truncated")
class ResultTruncated(EventData, frozen=True):
    """A result was too long for the free context. The whole text is kept and can be recalled."""

    call_id: str
    length: int
    """Characters of the whole text."""
    shown: int


@durable("hook_blocked")
class HookBlocked(EventData, frozen=True):
    """A hook rejected the call. `content` is what the model is told."""

    call_id: str
    name: str
    hook: str
    content: str


@durable("process_killed")
class ProcessKilled(EventData, frozen=True):
    """A command was killed with all processes that it had started."""

    call_id: str
    command: str
    why: Literal["timeout", "cancelled", "output", "memory", "processes", "disk"]
    processes: int = 1


@durable("sandbox_denied")
class SandboxDenied(EventData, frozen=True):
    """A command was not run: the agent requires a sandbox, and this machine has none."""

    call_id: str
    reason: str
