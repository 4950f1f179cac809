"""Events of child runs and evaluations."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.lineage import Role
from treadle.domain.modes import ApprovalMode
from treadle.domain.runs import Metrics, Outcome, OutcomeKind, Status


@durable("agent_spawn")
class AgentSpawn(EventData, frozen=True):
    """A child run was started in the same commit. Its answer will be the result of the call."""

    call_id: str
    """The call that starts it. An evaluation has a name that no call has."""
    run_id: RunId
    """The ID of the child run."""
    session_id: SessionId
    agent: str
    role: Role
    arguments: str = ""
    """The arguments of the call, after hooks and reviewers."""
    expires_at: Instant | None = None
    """When the parent asks it to stop; null: never."""
    withheld: tuple[str, ...] = ()
    """Tools of its agent that it does not have, because its parent lacks them."""
    end: Outcome | None = None
    """For an evaluation: how the run ends afterwards."""
    mode: ApprovalMode | None = None
    """The mode that the child run begins with."""


@durable("agent_end")
class AgentEnd(EventData, frozen=True):
    """A child run has ended. Delivered to its parent in the commit of that end."""

    call_id: str
    run_id: RunId
    agent: str
    status: Status
    outcome: OutcomeKind
    text: str
    reason: str
    metrics: Metrics
    """The metrics of the child run itself."""
    steps: int = 0
    """Steps of the child run and its descendants."""
    stopped: tuple[str, ...] = ()
    tree_metrics: Metrics | None = None
    """The metrics of the child run and its descendants; null: it has none."""


ReviewerWait = Literal["approval", "answer", "interrupted"]


@durable("agent_waiting")
class AgentWaiting(EventData, frozen=True):
    """A descendant waits for a reviewer. Delivered to the root, whose users answer, and to all runs between, whose
    time limits for the child pause."""

    run_id: RunId
    agent: str
    reason: ReviewerWait
    detail: str
    call_id: str = ""
    """The call of the receiving run that the descendant belongs to."""


@durable("agent_answered")
class AgentAnswered(EventData, frozen=True):
    """A run no longer waits for a reviewer: it was answered, or is about to end. Recorded in the run itself, and
    delivered in the same commit to all runs that were notified of the wait."""

    run_id: RunId
    agent: str
    call_id: str = ""
    """The call of the receiving run that the descendant belongs to; empty in the run itself."""


ChildSignal = Literal["cancel", "interrupt", "resume", "mode"]


@durable("agent_told")
class AgentTold(EventData, frozen=True):
    """Child runs were told to stop, to wait, to continue or to change their mode, in the same commit."""

    call_ids: tuple[str, ...]
    what: ChildSignal
    reason: str
    mode: ApprovalMode | None = None
    """The new mode, for `mode`."""


@durable("quality_scored")
class QualityScored(EventData, frozen=True):
    """The answer of the run was scored; or it was not, and why."""

    checker: str
    run_id: RunId | None = None
    """The run that evaluated it."""
    score: float | None = None
    """From 0 to 1; null: it was not scored."""
    reasons: str = ""
    """The reasons of the score, or why there is none."""
    note: str = ""
    """The note for the agent, if the score is below the minimum and the agent tries again."""


@durable("error_analyzed")
class ErrorAnalyzed(EventData, frozen=True):
    """The diagnosis of a failed run; or why there is none."""

    analyzer: str
    run_id: RunId | None = None
    diagnosis: str = ""
    """Empty if there is none."""
    reason: str = ""
    """Why there is none."""
