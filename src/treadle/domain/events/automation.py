"""Events of schedules and webhooks."""

from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant


@durable("heartbeat_fired")
class HeartbeatFired(EventData, frozen=True):
    """A schedule, or the heartbeat of the agent, started the run."""

    schedule_id: str
    due_at: Instant
    """The tick for which it was started."""
    missed_since: Instant | None = None
    """The first tick that was missed because no process was running. The run stands for all missed ticks."""


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
    """The sender's ID of the message. A message is processed once."""
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
    """When delivery is retried; null: it is not."""
