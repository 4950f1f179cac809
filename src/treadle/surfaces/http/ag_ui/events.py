"""The events of AG-UI 1.0 that a run sends, and the messages in them."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

PROTOCOL_VERSION = "1.0"


class AgUiEvent(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, tag_field="type"):
    """What all events have."""


class RunStarted(AgUiEvent, frozen=True, tag="RUN_STARTED"):
    thread_id: str
    run_id: str
    protocol_version: str
    metadata: dict[str, Any]


class TokenUsage(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Tokens of the model calls of the run."""

    provider: str = ""
    model: str = ""
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cached_input_tokens: int = 0


class Interrupt(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What a run waits for until a person answers."""

    id: str
    reason: str
    message: str
    tool_call_id: str = ""
    response_schema: dict[str, Any] = {}
    expires_at: str = ""
    subagent_run_id: str = ""
    metadata: dict[str, Any] = {}


class Success(Struct, frozen=True, rename="camel", omit_defaults=True, tag="success"):
    pending_tool_call_ids: tuple[str, ...] = ()
    """Calls of the client's tools, whose results the client sends with its next request."""


class Interrupted(Struct, frozen=True, tag="interrupt"):
    interrupts: tuple[Interrupt, ...]


class Cancelled(Struct, frozen=True, tag="cancelled"):
    """The run was cancelled."""


class RunFinished(AgUiEvent, frozen=True, tag="RUN_FINISHED"):
    thread_id: str
    run_id: str
    outcome: Success | Interrupted | Cancelled
    result: dict[str, Any] | None = None
    usage: tuple[TokenUsage, ...] = ()


class RunError(AgUiEvent, frozen=True, tag="RUN_ERROR"):
    message: str
    code: str
    usage: tuple[TokenUsage, ...] = ()


class TextMessageStart(AgUiEvent, frozen=True, tag="TEXT_MESSAGE_START"):
    message_id: str
    role: Literal["assistant", "user"]


class TextMessageContent(AgUiEvent, frozen=True, tag="TEXT_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class TextMessageEnd(AgUiEvent, frozen=True, tag="TEXT_MESSAGE_END"):
    message_id: str


class ReasoningStart(AgUiEvent, frozen=True, tag="REASONING_START"):
    message_id: str


class ReasoningMessageStart(AgUiEvent, frozen=True, tag="REASONING_MESSAGE_START"):
    message_id: str
    role: Literal["reasoning"]


class ReasoningMessageContent(AgUiEvent, frozen=True, tag="REASONING_MESSAGE_CONTENT"):
    message_id: str
    delta: str


class ReasoningMessageEnd(AgUiEvent, frozen=True, tag="REASONING_MESSAGE_END"):
    message_id: str


class ReasoningEnd(AgUiEvent, frozen=True, tag="REASONING_END"):
    message_id: str


class CallStart(AgUiEvent, frozen=True, tag="TOOL_CALL_START"):
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str


class CallArgs(AgUiEvent, frozen=True, tag="TOOL_CALL_ARGS"):
    tool_call_id: str
    delta: str


class CallEnd(AgUiEvent, frozen=True, tag="TOOL_CALL_END"):
    tool_call_id: str


class TextContent(Struct, frozen=True, tag="text"):
    text: str


class ImageData(Struct, frozen=True, rename="camel", tag="data"):
    value: str
    mime_type: str


class ImageContent(Struct, frozen=True, tag="image"):
    source: ImageData


Content = str | tuple[TextContent | ImageContent, ...]


class CallResult(AgUiEvent, frozen=True, tag="TOOL_CALL_RESULT"):
    message_id: str
    tool_call_id: str
    content: Content
    role: Literal["tool"]


class SubagentStarted(AgUiEvent, frozen=True, tag="SUBAGENT_STARTED"):
    subagent_run_id: str
    name: str
    parent_tool_call_id: str = ""


class SubagentOutcome(Struct, frozen=True):
    type: Literal["success", "suspended"]


class SubagentFinished(AgUiEvent, frozen=True, tag="SUBAGENT_FINISHED"):
    subagent_run_id: str
    outcome: SubagentOutcome


class SubagentError(AgUiEvent, frozen=True, tag="SUBAGENT_ERROR"):
    subagent_run_id: str
    message: str
    code: str


class StateSnapshot(AgUiEvent, frozen=True, tag="STATE_SNAPSHOT"):
    snapshot: dict[str, Any]


# ── Messages ──


class CallFunction(Struct, frozen=True):
    name: str
    arguments: str


class MessageCall(Struct, frozen=True):
    id: str
    function: CallFunction
    type: Literal["function"]


class SnapshotMessage(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A message of the conversation."""

    id: str
    role: Literal["user", "assistant", "tool", "reasoning", "system", "developer"]
    content: Content | None = None
    tool_calls: tuple[MessageCall, ...] = ()
    tool_call_id: str = ""
    error: str = ""


class MessagesSnapshot(AgUiEvent, frozen=True, tag="MESSAGES_SNAPSHOT"):
    messages: tuple[SnapshotMessage, ...]


SentEvent = (
    RunStarted
    | RunFinished
    | RunError
    | TextMessageStart
    | TextMessageContent
    | TextMessageEnd
    | ReasoningStart
    | ReasoningMessageStart
    | ReasoningMessageContent
    | ReasoningMessageEnd
    | ReasoningEnd
    | CallStart
    | CallArgs
    | CallEnd
    | CallResult
    | SubagentStarted
    | SubagentFinished
    | SubagentError
    | StateSnapshot
    | MessagesSnapshot
)
_encode = msgspec.json.Encoder().encode


def encode_event(event: AgUiEvent) -> bytes:
    """Return an event as a server-sent event."""
    return b"data: %b\n\n" % _encode(event)
