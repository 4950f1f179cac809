"""Events about the context: truncation, compaction, segments, pinned messages and session commands."""

from typing import Literal

from msgspec import Struct

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.ids import SegmentId
from treadle.domain.memories import ShownMemory
from treadle.domain.messages import Message
from treadle.domain.runs import Usage

TrimStage = Literal["history", "shrink", "trim", "drop"]
"""history: the agent's limit of messages. shrink: long results. trim: the results of old turns. drop: old turns."""
CompactStage = Literal["compact", "harder"]
CompactTrigger = Literal["threshold", "overflow", "command"]


@durable("context_trimmed", guard="context")
class ContextTrimmed(EventData, frozen=True):
    """The conversation was shortened without a model: old messages were left out, or results were truncated."""

    stage: TrimStage
    freed: int
    """Estimated tokens."""
    dropped: tuple[int, int] = (0, 0)
    """The messages that were left out: from the first index up to but excluding the second."""
    kept: tuple[int, ...] = ()
    """The indexes in that range that stay."""
    results: tuple[str, ...] = ()
    """The calls whose results were truncated. Each full text is stored and can be recalled."""
    longest: int = 0
    """Maximum number of characters that each of them has now."""


@durable("compaction_started")
class CompactionStarted(EventData, frozen=True):
    """The intent to request a summary, committed before the model is called."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    """The messages that the summary replaces: from this index"""
    last: int
    """up to but excluding this one."""
    provider: str
    model: str
    input_estimate: int = 0
    cost_estimate: float | None = None
    repeats_lost: bool = False
    """The previous summary was lost in a crash; the provider may charge for both."""


CompactionFailure = Literal["failed", "empty", "not_shorter", "interrupted", "nothing"]
"""failed: the model call failed. empty: the model wrote nothing. not_shorter: the summary would not be shorter than
what it replaces. interrupted: it was stopped. nothing: there was nothing to summarise."""


@durable("compaction_failed")
class CompactionFailed(EventData, frozen=True):
    """The summary failed. The conversation is unchanged."""

    stage: CompactStage
    trigger: CompactTrigger
    reason: str
    usage: Usage = Usage()
    duration_ms: int = 0
    cost: float | None = None
    calls: int = 1
    """Number of model calls: a long conversation is read in pieces."""
    cause: CompactionFailure = "failed"


@durable("context_compacted", guard="context")
class ContextCompacted(EventData, frozen=True):
    """Messages in the middle of the conversation were replaced by a summary."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    last: int
    kept: tuple[int, ...]
    """The indexes in that range that stay, after the summary: pinned messages and the task of the run."""
    summary: str
    tokens_before: int
    tokens_after: int
    """Of the whole request, estimated."""
    model: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    cost: float | None = None
    calls: int = 1
    """Number of model calls: a long conversation is read in pieces."""
    record: str = ""
    """What is kept with the summary: the user's words, decisions, files and the plan."""


SegmentReason = Literal["compaction", "reset", "undo"]


@durable("segment_opened")
class SegmentOpened(EventData, frozen=True):
    """The session continues with another conversation. `parent` is the previous segment."""

    segment_id: SegmentId
    parent: SegmentId
    reason: SegmentReason
    messages: int = 0
    """Number of messages that it begins with."""


class SessionUsage(Struct, frozen=True, gc=False):
    """The answer to a usage command: what a session has used, and how full its context window is."""

    runs: int
    steps: int
    tool_calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: float
    """Dollars."""
    unpriced_calls: int
    context_tokens: int
    """Estimated."""
    context_window: int
    messages: int
    segments: int


@durable("command_obeyed")
class CommandObeyed(EventData, frozen=True):
    """A session command was executed or rejected."""

    said: str
    """The answer for the user."""
    done: bool = True
    """False if the command was rejected."""
    memories: tuple[ShownMemory, ...] = ()
    """The memories that `said` lists."""
    usage: SessionUsage | None = None
    """The usage that `said` reports."""


@durable("compaction_undone")
class CompactionUndone(EventData, frozen=True):
    """Messages that a compaction or a reset removed are restored."""

    undone: SegmentId
    first: int
    last: int
    """The messages that are removed: the summary and the pinned messages after it; none after a reset."""
    messages: tuple[Message, ...]
    """The messages that are restored."""


@durable("message_pinned")
class MessagePinned(EventData, frozen=True):
    """A message that compactions keep: a message of the conversation, or a new one."""

    message: Message
    index: int | None = None
