"""Events of chat channels."""

from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant


@durable("channel_received")
class ChannelReceived(EventData, frozen=True):
    """A message of a channel started the run, or was delivered to it."""

    channel: str
    message_id: str
    """The platform's ID of the message. A message is processed once."""
    conversation: str
    sender: str
    """The platform's ID of the person."""
    attachments: int = 0


@live("channel_sent", stream="system")
class ChannelSent(EventData, frozen=True):
    """A message was sent to a channel. It was stored before it was sent."""

    channel: str
    conversation: str
    key: str
    """The key of the message, by which repeated attempts are recognised."""
    message_id: str
    """The platform's ID of the message."""
    attempt: int


@live("channel_failed", stream="system")
class ChannelFailed(EventData, frozen=True):
    """A message could not be sent to a channel."""

    channel: str
    conversation: str
    key: str
    attempt: int
    reason: str
    retry_at: Instant | None = None
    """When sending is retried; null: it is not."""
