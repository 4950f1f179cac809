"""What starts runs by itself, and what is sent out of them."""

from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant


@durable("heartbeat_fired")
class HeartbeatFired(EventData, frozen=True):
    """A schedule, or the heartbeat of the agent, started the run."""

    schedule_id: str
    due_at: Instant
    """The tick that it was started for."""
    missed_since: Instant | None = None
    """The first of the ticks that nobody was there for, and for which it stands too."""


@durable("schedule_skipped")
class ScheduleSkipped(EventData, frozen=True):
    """A tick came while this run of the schedule was in progress. No other run was started for it."""

    schedule_id: str
    due_at: Instant


@durable("webhook_received")
class WebhookReceived(EventData, frozen=True):
    """A request to an inbound webhook started the run."""

    hook_id: str
    webhook_id: str
    """As the sender calls the message: it is taken once."""
    size: int
    """Bytes of its body."""


@live("webhook_delivered", stream="system")
class WebhookDelivered(EventData, frozen=True):
    """An event was delivered to a webhook."""

    webhook_id: str
    event_id: str
    attempt: int


@live("webhook_failed", stream="system")
class WebhookFailed(EventData, frozen=True):
    """An event could not be delivered to a webhook."""

    webhook_id: str
    event_id: str
    attempt: int
    reason: str
    retry_at: Instant | None = None
    """When it is tried again; None: it is given up."""
