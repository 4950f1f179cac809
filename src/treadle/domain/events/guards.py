"""What the guards found, and what was done about it."""

from typing import Literal

from treadle.domain.events.vocabulary import EventData, durable


@durable("loop_warning")
class LoopWarning(EventData, frozen=True):
    """A call repeats itself. `note` is for the model."""

    tool: str
    key: str
    count: int
    note: str


StuckKind = Literal["failing_tool", "no_new_information"]


@durable("stuck_detected")
class StuckDetected(EventData, frozen=True):
    kind: StuckKind
    count: int
    tool: str | None = None


RecoveryStage = Literal["note", "refuse_tool", "report"]


@durable("recovery_action")
class RecoveryAction(EventData, frozen=True):
    """What was done about being stuck: a note, then a tool refused for a turn, then a turn without tools."""

    stage: RecoveryStage
    note: str
    tool: str | None = None


@durable("empty_turn")
class EmptyTurn(EventData, frozen=True):
    """The model said nothing and called nothing."""

    count: int
    note: str


@durable("continuation")
class Continuation(EventData, frozen=True):
    """The reply was cut at the model's token limit and is being continued."""

    count: int
    note: str


@durable("output_rejected")
class OutputRejected(EventData, frozen=True):
    """The answer does not fit the schema that was asked for."""

    count: int
    error: str
    note: str


@durable("budget_hint")
class BudgetHint(EventData, frozen=True):
    """The agent asked to be told when a limit comes near."""

    percent: int
    note: str


@durable("phantom_action")
class PhantomAction(EventData, frozen=True):
    """The answer claims something that no call of the run has done."""

    count: int
    claim: str
    note: str
