"""What a run can do next."""

from msgspec import Struct

from treadle.core.ledger import Call
from treadle.domain.events import EventData, LlmFallback, WaitReason
from treadle.domain.identity import Instant
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


class FallBack(Struct, frozen=True):
    """Let the next of the agent's fallbacks take over."""

    event: LlmFallback


class Finish(Struct, frozen=True):
    outcome: Outcome
    events: tuple[EventData, ...] = ()


Step = CallModel | RunTools | FallBack | Wait | Finish
