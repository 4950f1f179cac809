"""Runs under a run: begun, waiting for a person, asked to stop, ended; and what those say that judge a run."""

from typing import Literal

from treadle.domain.events.definitions import EventData, durable
from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.lineage import Role
from treadle.domain.runs import Metrics, Outcome, OutcomeKind, Status


@durable("agent_spawn")
class AgentSpawn(EventData, frozen=True):
    """A child run was started in the same commit. Its answer will be the result of the call."""

    call_id: str
    """For one that judges the run, a name that no call has."""
    run_id: RunId
    """The child's."""
    session_id: SessionId
    agent: str
    role: Role
    arguments: str = ""
    """What the call was made with, as hooks and people have left it."""
    expires_at: Instant | None = None
    """When it is asked to stop; None: never."""
    withheld: tuple[str, ...] = ()
    """Tools of its agent that it was not given, because its parent has not got them."""
    end: Outcome | None = None
    """For one that judges: how the run ends when it has been judged."""


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
    """Its own."""
    steps: int = 0
    """Of it and of all under it."""
    stopped: tuple[str, ...] = ()


ReviewerWait = Literal["approval", "answer", "interrupted"]


@durable("agent_waiting")
class AgentWaiting(EventData, frozen=True):
    """A run below this one waits for a person. Delivered to the root, whose users answer, and to all runs between,
    whose time limits for the child stop."""

    run_id: RunId
    agent: str
    reason: ReviewerWait
    detail: str
    call_id: str = ""
    """The call that it is under."""


@durable("agent_answered")
class AgentAnswered(EventData, frozen=True):
    """A run no longer waits for a person: it was answered, or is about to end. Recorded in the run itself, and
    delivered in the same commit to all runs that were told of the wait."""

    run_id: RunId
    agent: str
    call_id: str = ""
    """The call of whoever is told that it is under; empty: it is the run itself."""


ChildSignal = Literal["cancel", "interrupt", "resume"]


@durable("agent_told")
class AgentTold(EventData, frozen=True):
    """Child runs were told to stop, to wait or to continue, in the same commit."""

    call_ids: tuple[str, ...]
    what: ChildSignal
    reason: str


@durable("quality_scored")
class QualityScored(EventData, frozen=True):
    """The answer of the run was scored; or it was not, and why."""

    checker: str
    run_id: RunId | None = None
    """That judged."""
    score: float | None = None
    """From 0 to 1; None: it was not judged."""
    reasons: str = ""
    """Of the score, or why there is none."""
    note: str = ""
    """What the agent is told, where the score is below the minimum and it tries again."""


@durable("error_analyzed")
class ErrorAnalyzed(EventData, frozen=True):
    """The diagnosis of a failed run; or why there is none."""

    analyzer: str
    run_id: RunId | None = None
    diagnosis: str = ""
    """Empty: there is none."""
    reason: str = ""
    """Why there is none."""
