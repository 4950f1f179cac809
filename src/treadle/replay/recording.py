"""The record of a run and its session: everything that a replay is given."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.envelope import VERSION, Event, Origin
from treadle.domain.events import EventData, RunEnd
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.ports.approvals import Grant
from treadle.ports.sessions import SegmentRecord

OPENING = (e.RunQueued, e.RunForked, e.HeartbeatFired, e.WebhookReceived, e.Redacted, e.UserMessage)
"""Events that a run is submitted with."""
DELIVERED = (
    e.MessageSteered, e.RunInterrupted, e.ResumeRequested, e.CancelRequested, e.ClarifyAnswered, e.ClientResult,
    e.ModeChanged, e.ScheduleSkipped,
    e.AgentEnd, e.AgentWaiting, e.TrialStarted,
)  # fmt: skip
"""Events that are delivered to a run, or that say how its worker executed it."""
NOT_REPRODUCED = (e.ChannelReceived,)
"""Events of other processes, which no replay can reproduce."""
_KNOWN = {kind.data for kind in e.VOCABULARY.values() if kind.durable} - {*NOT_REPRODUCED}


class PastRun(Struct, frozen=True):
    """An earlier run of the session."""

    history: tuple[Message, ...]
    events: tuple[Event, ...]


class Recorded(Struct, frozen=True):
    """The journal of a run, and the state of its session when it began."""

    origin: Origin
    events: tuple[Event, ...]
    history: tuple[Message, ...] = ()
    """The messages of the session before this run."""
    segments: tuple[SegmentRecord, ...] = ()
    """The segments that earlier runs opened."""
    ends: tuple[RunEnd, ...] = ()
    """The ends of earlier runs."""
    earlier: tuple[PastRun, ...] = ()
    """The runs directly before it, the latest last."""
    others: dict[RunId, PastRun] = {}
    """The runs whose messages an undo restored."""
    grants: tuple[Grant, ...] = ()
    """The approvals for the session that applied to this run, or were given in it."""


def is_delivery(data: EventData) -> bool:
    """Return whether the event was delivered to the run, instead of written by its worker."""
    if isinstance(data, e.ApprovalDecided):
        return not data.superseded
    if isinstance(data, e.AgentAnswered):
        return data.call_id != ""
    return isinstance(data, DELIVERED)


def count_opening(events: Sequence[Event]) -> int:
    """Return the number of events that a run was submitted with."""
    for index, event in enumerate(events):
        if not isinstance(event.data, OPENING):
            return index
    return len(events)


def count_replayable(events: Sequence[Event]) -> tuple[int, str]:
    """Return how many events a replay can reproduce, and why it cannot reproduce the next one, or ""."""
    for index, event in enumerate(events):
        if event.version > VERSION or isinstance(event.data, e.UnknownEvent):
            return index, (
                f"event {event.sequence} (`{event.type}`) was written by a later version of Treadle (version "
                f"{event.version} of events; this one writes {VERSION}). Replay it with that version."
            )
        if type(event.data) not in _KNOWN:
            return index, f"event {event.sequence} is a `{event.type}`, which a replay cannot reproduce."
    return len(events), ""
