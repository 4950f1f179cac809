"""Deliveries: anyone may append these, without owning the run."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.events.permissions import ApprovalDecided, ClarifyAnswered
from treadle.domain.messages import Message

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


Delivery = MessageSteered | RunInterrupted | ResumeRequested | CancelRequested | ApprovalDecided | ClarifyAnswered
