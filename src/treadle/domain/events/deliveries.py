"""Deliveries: events that any process may append, without owning the run."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.events.permissions import ApprovalDecided, ClarifyAnswered, ModeChanged
from treadle.domain.events.tool_calls import ClientResult
from treadle.domain.messages import Message

SteerMode = Literal["steer", "interrupt"]
"""When a run reads a message: at its next step, or at once."""


@durable("message_steered")
class MessageSteered(EventData, frozen=True):
    """A message for a run in progress, delivered at its next step or at once."""

    message: Message
    mode: SteerMode


@durable("run_interrupted")
class RunInterrupted(EventData, frozen=True):
    """A request to stop what is in progress and wait."""

    reason: str


@durable("resume_requested")
class ResumeRequested(EventData, frozen=True):
    """A request to resume a waiting run."""


@durable("cancel_requested")
class CancelRequested(EventData, frozen=True):
    """A request to end the run."""

    reason: str


Delivery = (
    MessageSteered
    | RunInterrupted
    | ResumeRequested
    | CancelRequested
    | ApprovalDecided
    | ClarifyAnswered
    | ClientResult
    | ModeChanged
)
