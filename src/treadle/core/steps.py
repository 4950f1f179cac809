"""The steps that a run can take next."""

from typing import Literal

from msgspec import Struct

from treadle.core.tools.ledger import Call
from treadle.domain.commands import AskMemory, AskUsage, PinMessage, ResetSession, UndoSession
from treadle.domain.events import (
    ChildSignal,
    CompactStage,
    CompactTrigger,
    ContextTrimmed,
    EventData,
    LlmFallback,
    ReviewerWait,
    WaitReason,
)
from treadle.domain.ids import Instant
from treadle.domain.messages import ToolResult
from treadle.domain.quotas import Shortage
from treadle.domain.runs import Outcome


class CallModel(Struct, frozen=True, gc=False):
    """Call the model. `events` are the guards' findings, which go with the request."""

    events: tuple[EventData, ...] = ()
    tools_offered: bool = True


class RunTools(Struct, frozen=True):
    """Run these calls concurrently. The others are refused with these events."""

    run: tuple[Call, ...]
    refuse: tuple[EventData, ...]


class Wait(Struct, frozen=True):
    """Release the run until something is delivered, or until `wake_at`."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None
    subjects: tuple[str, ...] = ()
    """IDs of the approvals, questions and child runs that it waits for."""
    shortage: Shortage | None = None
    breaker_seconds: float | None = None

    @property
    def reviewer_wait(self) -> ReviewerWait | None:
        """What a reviewer must do for the run to continue, or None."""
        match self.reason:
            case "approval" | "answer" | "interrupted":
                return self.reason
            case _:
                return None


class TruncateResults(Struct, frozen=True):
    """Shorten the transcript as the event says; `results` are the full results that it truncates."""

    event: ContextTrimmed
    results: tuple[ToolResult, ...] = ()


class Compact(Struct, frozen=True):
    """Replace these messages with a summary, from the first up to but excluding the last."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    last: int
    kept: tuple[int, ...] = ()
    """Indexes of the messages in the span that stay."""


class RunSessionCommand(Struct, frozen=True):
    """Execute a session command."""

    command: ResetSession | UndoSession | PinMessage | AskMemory | AskUsage


class SwitchModel(Struct, frozen=True):
    """Switch to the agent's next fallback model."""

    event: LlmFallback


class UseAlternative(Struct, frozen=True):
    """Resolve the model again: its breaker is open, and its name can be served by another model."""


class Finish(Struct, frozen=True):
    outcome: Outcome
    events: tuple[EventData, ...] = ()


class SignalChildren(Struct, frozen=True):
    """Send a signal to these child runs."""

    call_ids: tuple[str, ...]
    what: ChildSignal
    reason: str


class CollectChildren(Struct, frozen=True):
    """Use the outcomes of these child runs as the results of their calls."""

    calls: tuple[Call, ...]


class NotifyResumed(Struct, frozen=True):
    """Tell the ancestors that the run no longer waits for a reviewer."""


class Evaluate(Struct, frozen=True):
    """Have an agent evaluate how the run ends, before it ends."""

    role: Literal["quality", "errors"]
    agent: str
    end: Outcome
    events: tuple[EventData, ...] = ()
    """Events to commit before the evaluation."""


Step = (
    CallModel
    | RunTools
    | CollectChildren
    | SignalChildren
    | NotifyResumed
    | Evaluate
    | TruncateResults
    | Compact
    | RunSessionCommand
    | SwitchModel
    | UseAlternative
    | Wait
    | Finish
)
