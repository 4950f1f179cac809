"""What became of the conversation: how it was made to fit, what was folded away, what was kept on purpose."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.ids import SegmentId
from treadle.domain.messages import Message
from treadle.domain.runs import Usage

TrimStage = Literal["history", "shrink", "trim", "drop"]
"""The agent's limit of messages; long results; the results of old turns; old turns themselves."""
CompactStage = Literal["compact", "harder"]
CompactTrigger = Literal["threshold", "overflow", "command"]


@durable("context_trimmed")
class ContextTrimmed(EventData, frozen=True):
    """The conversation was shortened without a model: old messages were left out, or results were truncated."""

    stage: TrimStage
    freed: int
    """Tokens, as estimated."""
    dropped: tuple[int, int] = (0, 0)
    """The messages that were left out: from the first, up to and without the second,"""
    kept: tuple[int, ...] = ()
    """but for these."""
    results: tuple[str, ...] = ()
    """The calls whose results were cut; all of each is kept and can be recalled."""
    longest: int = 0
    """Characters that each of them has now at most."""


@durable("compaction_started")
class CompactionStarted(EventData, frozen=True):
    """The intent to request a summary, committed before the model is called."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    """The messages that it is to stand for: from this one,"""
    last: int
    """up to and without this one."""
    provider: str
    model: str
    input_estimate: int = 0
    cost_estimate: float | None = None
    repeats_lost: bool = False
    """The one before was lost in a crash; the provider may charge for both."""


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
    """How often the model was asked for it: a long conversation is read in pieces."""


@durable("context_compacted")
class ContextCompacted(EventData, frozen=True):
    """Messages in the middle of the conversation were replaced by a summary."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    last: int
    kept: tuple[int, ...]
    """Those among them that stay, behind the summary: what is pinned, and what the run is about."""
    summary: str
    tokens_before: int
    tokens_after: int
    """Of the whole request, as estimated."""
    model: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    cost: float | None = None
    calls: int = 1
    """How often the model was asked for it: a long conversation is read in pieces."""


SegmentReason = Literal["compaction", "reset", "undo"]


@durable("segment_opened")
class SegmentOpened(EventData, frozen=True):
    """The session continues with another conversation. `parent` is the previous segment."""

    segment_id: SegmentId
    parent: SegmentId
    reason: SegmentReason
    messages: int = 0
    """How many messages it begins with."""


@durable("command_obeyed")
class CommandObeyed(EventData, frozen=True):
    """A session command was executed or rejected."""

    said: str
    """For whoever asked."""
    done: bool = True


@durable("compaction_undone")
class CompactionUndone(EventData, frozen=True):
    """Messages that a compaction or a reset removed are restored."""

    undone: SegmentId
    first: int
    last: int
    """The messages that make way: a summary and what was pinned; none after a reset."""
    messages: tuple[Message, ...]
    """What stands there again."""


@durable("message_pinned")
class MessagePinned(EventData, frozen=True):
    """A message that compactions keep: a message of the conversation, or a new one."""

    message: Message
    index: int | None = None
