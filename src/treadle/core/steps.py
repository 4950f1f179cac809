"""The steps that a run can take next.

Two are events that the loop records as it takes them: `RunWaiting` releases the run until something is delivered or
until `wake_at`, and `AgentTold` sends a signal to child runs."""

from typing import Literal

from msgspec import Struct

from treadle.core.tools.ledger import Call
from treadle.domain.commands import PlainCommand
from treadle.domain.events import (
    AgentTold,
    CompactStage,
    CompactTrigger,
    ContextTrimmed,
    EventData,
    LlmFallback,
    ReviewerWait,
    RunWaiting,
)
from treadle.domain.messages import ToolResult
from treadle.domain.runs import Outcome


class CallModel(Struct, frozen=True, gc=False):
    """Call the model. `events` are the guards' findings, which go with the request."""

    events: tuple[EventData, ...] = ()
    tools_offered: bool = True


class RunTools(Struct, frozen=True):
    """Run these calls concurrently. The others are refused with these events, or have the results of the client."""

    run: tuple[Call, ...]
    refuse: tuple[EventData, ...]
    delivered: tuple[Call, ...] = ()


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

    command: PlainCommand


class SwitchModel(Struct, frozen=True):
    """Switch to the agent's next fallback model."""

    event: LlmFallback


class UseAlternative(Struct, frozen=True):
    """Resolve the model again: its breaker is open, and its name can be served by another model."""


class Finish(Struct, frozen=True):
    outcome: Outcome
    events: tuple[EventData, ...] = ()


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
    | AgentTold
    | NotifyResumed
    | Evaluate
    | TruncateResults
    | Compact
    | RunSessionCommand
    | SwitchModel
    | UseAlternative
    | RunWaiting
    | Finish
)


def find_reviewer_wait(wait: RunWaiting) -> ReviewerWait | None:
    """Return what a reviewer must do for a run to continue, or None."""
    match wait.reason:
        case "approval" | "answer" | "interrupted":
            return wait.reason
        case _:
            return None
