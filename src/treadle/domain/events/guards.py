"""Events of the guards: what they found, and how they reacted."""

from typing import Final, Literal

from treadle.domain.events.definitions import EventData, durable


@durable("loop_warning", guard="loop")
class LoopWarning(EventData, frozen=True):
    """The model repeats a call. `note` is for the model."""

    tool: str
    key: str
    count: int
    note: str


StuckKind = Literal[
    "failing_tool", "failing_calls", "no_new_information", "no_report", "repeated_call", "repeated_cycle"
]
LOOP_KINDS: Final[tuple[StuckKind, ...]] = ("repeated_call", "repeated_cycle")
"""What the loop guard detects. The others are detected by the stuck guard."""


@durable("stuck_detected", guard="stuck")
class StuckDetected(EventData, frozen=True):
    """The run makes no progress. A `recovery_action` follows, or the run ends as `stuck`."""

    kind: StuckKind
    count: int
    tool: str | None = None


RecoveryStage = Literal["note", "refuse_tool", "report", "report_again"]
REPORT_STAGES: Final[tuple[RecoveryStage, ...]] = ("report", "report_again")


@durable("recovery_action")
class RecoveryAction(EventData, frozen=True):
    """A stage of the recovery of a stuck run: a note, then a tool rejected for a turn, then a report without tools.
    A model that calls a tool instead of reporting is asked for the report once more."""

    stage: RecoveryStage
    note: str
    tool: str | None = None

    @property
    def wants_report(self) -> bool:
        return self.stage in REPORT_STAGES


@durable("empty_turn", guard="empty")
class EmptyTurn(EventData, frozen=True):
    """The reply had no text and no tool calls."""

    count: int
    note: str


@durable("continuation", guard="continuation")
class Continuation(EventData, frozen=True):
    """The reply was cut at the model's token limit, or paused by its provider, and is being continued."""

    count: int
    note: str


@durable("calls_dropped", guard="calls")
class CallsDropped(EventData, frozen=True):
    """The reply had more tool calls than the agent allows. The calls beyond the limit were dropped while they
    arrived, and none of them ran. `note` is for the model."""

    step: int
    dropped: int
    limit: int
    note: str


@durable("output_rejected", guard="output")
class OutputRejected(EventData, frozen=True):
    """The answer does not match the requested schema."""

    count: int
    error: str
    note: str


@durable("call_written", guard="written_call")
class CallWritten(EventData, frozen=True):
    """The reply contains a tool call written as text, which is not run. `note` is for the model."""

    count: int
    received: str
    """The call, or its beginning."""
    note: str


@durable("budget_hint", guard="budget_hint")
class BudgetHint(EventData, frozen=True):
    """A note tells the model that a limit is near, because the agent has `budget_hints`."""

    percent: int
    note: str


@durable("phantom_action", guard="phantom")
class PhantomAction(EventData, frozen=True):
    """The answer claims an action that no call of the run has done."""

    count: int
    claim: str
    note: str
