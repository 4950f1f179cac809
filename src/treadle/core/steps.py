"""What a run can do next."""

from typing import Literal

from msgspec import Struct

from treadle.core.tools.ledger import Call
from treadle.domain.commands import AskMemory, AskUsage, PinMessage, ResetSession, UndoSession
from treadle.domain.events import (
    CompactStage,
    CompactTrigger,
    ContextTrimmed,
    EventData,
    LlmFallback,
    Telling,
    WaitForPeople,
    WaitReason,
)
from treadle.domain.ids import Instant
from treadle.domain.messages import ToolResult
from treadle.domain.runs import Outcome


class CallModel(Struct, frozen=True, gc=False):
    """Ask the model. `events` are what the guards had to say, which goes with the request."""

    events: tuple[EventData, ...] = ()
    tools_offered: bool = True


class RunTools(Struct, frozen=True):
    """Run these calls side by side; the others are refused with the results given here."""

    run: tuple[Call, ...]
    refuse: tuple[EventData, ...]


class Wait(Struct, frozen=True):
    """Let go of the run until something is delivered, or until `wake_at`."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None

    @property
    def of_people(self) -> WaitForPeople | None:
        """What a person must do for the run to go on; None: nothing."""
        match self.reason:
            case "approval" | "answer" | "interrupted":
                return self.reason
            case _:
                return None


class TruncateResults(Struct, frozen=True):
    """Make the conversation shorter, as the event says; `results` are those that it cuts, whole."""

    event: ContextTrimmed
    results: tuple[ToolResult, ...] = ()


class Compact(Struct, frozen=True):
    """Have these messages folded into a summary: from the first, up to and without the last."""

    stage: CompactStage
    trigger: CompactTrigger
    first: int
    last: int
    kept: tuple[int, ...] = ()
    """Those among them that stay."""


class RunSessionCommand(Struct, frozen=True):
    """Do to the session what it was asked to do."""

    command: ResetSession | UndoSession | PinMessage | AskMemory | AskUsage


class SwitchModel(Struct, frozen=True):
    """Let the next of the agent's fallbacks take over."""

    event: LlmFallback


class Finish(Struct, frozen=True):
    outcome: Outcome
    events: tuple[EventData, ...] = ()


class SignalChildren(Struct, frozen=True):
    """Tell these children something."""

    call_ids: tuple[str, ...]
    what: Telling
    reason: str


class CollectChildren(Struct, frozen=True):
    """What came of these children is the result of their calls."""

    calls: tuple[Call, ...]


class NotifyResumed(Struct, frozen=True):
    """Tell those above that nobody is waited for any more."""


class Evaluate(Struct, frozen=True):
    """Have an agent look at how the run ends, before it does."""

    role: Literal["quality", "errors"]
    agent: str
    end: Outcome
    events: tuple[EventData, ...] = ()
    """What is on record of the end before anybody looks at it."""


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
    | Wait
    | Finish
)
