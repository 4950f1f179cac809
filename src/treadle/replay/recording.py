"""What is on record of a run and of its session: all that a replay is given."""

from collections.abc import Sequence

from msgspec import Struct

from treadle.core.tools.plan import SUPERSEDED
from treadle.domain import events as e
from treadle.domain.envelope import VERSION, Event, Origin
from treadle.domain.events import EventData, RunEnd
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.ports.approvals import Grant
from treadle.ports.sessions import SegmentRecord

OPENING = (e.RunQueued, e.RunForked, e.HeartbeatFired, e.WebhookReceived, e.Redacted, e.UserMessage)
"""What a run is submitted with."""
DELIVERED = (
    e.MessageSteered, e.RunInterrupted, e.ResumeRequested, e.CancelRequested, e.ClarifyAnswered, e.ScheduleSkipped,
    e.AgentEnd, e.AgentWaiting,
)  # fmt: skip
"""What others append to a run."""
WRITTEN = (
    e.RunStart, e.ModelResolved, e.RunWaiting, e.RunRecovered, e.RunQuarantined, e.RunEnd, e.StepStart, e.StepEnd,
    e.LlmRequest, e.LlmResponse, e.LlmError, e.LlmRetry, e.LlmFallback, e.BreakerOpened, e.BreakerClosed,
    e.ToolCallStart, e.ToolCallEnd, e.ToolCallError, e.ToolCallBlocked, e.ResultTruncated, e.HookBlocked,
    e.ProcessKilled, e.SandboxDenied, e.ContextTrimmed, e.CompactionStarted, e.CompactionFailed, e.ContextCompacted,
    e.SegmentOpened, e.CommandObeyed, e.CompactionUndone, e.MessagePinned, e.LoopWarning, e.StuckDetected,
    e.RecoveryAction, e.EmptyTurn, e.Continuation, e.CallWritten, e.OutputRejected, e.BudgetHint, e.PhantomAction,
    e.ApprovalRequested, e.ApprovalDecided, e.ApprovalExpired, e.ClarifyRequested, e.SecretUsed, e.SecretDenied,
    e.Redacted, e.BudgetReserved, e.BudgetExhausted, e.QuotaWarning, e.QuotaExceeded, e.MemoryRecalled,
    e.MemorySaved, e.MemoryFlushed, e.JournalWritten, e.MemoryDegraded, e.AgentSpawn, e.AgentTold, e.AgentAnswered,
    e.QualityScored,
    e.ErrorAnalyzed,
)  # fmt: skip
"""What the loop writes, and a replay knows how to bring about again."""
_KNOWN: frozenset[type[EventData]] = frozenset((*OPENING, *DELIVERED, *WRITTEN))


class PastRun(Struct, frozen=True):
    """A run of the session, as far as another needs it."""

    history: tuple[Message, ...]
    events: tuple[Event, ...]


class Recorded(Struct, frozen=True):
    """The journal of a run, and what its session had settled when it began."""

    origin: Origin
    events: tuple[Event, ...]
    history: tuple[Message, ...] = ()
    """What had been said."""
    segments: tuple[SegmentRecord, ...] = ()
    """Those that the runs before have opened."""
    ends: tuple[RunEnd, ...] = ()
    """Of the runs before."""
    earlier: tuple[PastRun, ...] = ()
    """The runs just before it, the latest last."""
    others: dict[RunId, PastRun] = {}
    """Runs whose conversation was brought back, by their ids."""
    grants: tuple[Grant, ...] = ()
    """What was approved for the whole session, by any of its runs."""


def is_delivery(data: EventData) -> bool:
    """Whether somebody else has appended it, and not the owner of the run."""
    if isinstance(data, e.ApprovalDecided):
        return data.note != SUPERSEDED
    if isinstance(data, e.AgentAnswered):
        return data.call_id != ""
    return isinstance(data, DELIVERED)


def opening(events: Sequence[Event]) -> int:
    """How many events a run was submitted with."""
    for index, event in enumerate(events):
        if not isinstance(event.data, OPENING):
            return index
    return len(events)


def known(events: Sequence[Event]) -> tuple[int, str]:
    """How many events a replay can bring about, and why not the one after them; empty: there is none."""
    for index, event in enumerate(events):
        if event.version > VERSION or isinstance(event.data, e.UnknownEvent):
            return index, (
                f"event {event.sequence} (`{event.type}`) was written by a later version of Treadle (version "
                f"{event.version} of events; this one writes {VERSION}). Replay it with that version."
            )
        if type(event.data) not in _KNOWN:
            return index, f"event {event.sequence} is a `{event.type}`, which a replay cannot bring about."
    return len(events), ""
