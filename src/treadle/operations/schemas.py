"""What goes over the wire: the bodies of requests, and records as others see them, with times for people."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct, field

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin
from treadle.domain.events import Decision, Remember, RunEnd, SegmentReason, SteerMode, WaitReason
from treadle.domain.ids import AgentId, ApprovalId, Instant, RunId, SegmentId, SessionId
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.submissions import Said
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.journal import RunRecord
from treadle.ports.sessions import SegmentRecord, SessionRecord

Item = TypeVar("Item")
MOST_ATTACHMENTS = 20
LONGEST_WAIT = 600


class Page(Struct, Generic[Item], frozen=True):
    """Part of a list. `next` is the cursor of what follows; null where nothing does."""

    items: tuple[Item, ...]
    next: str | None = None


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class Attachment(Struct, frozen=True, forbid_unknown_fields=True):
    """A picture, as base64 text with its media type; or a text file, with its name."""

    media_type: str | None = None
    data: str | None = None
    name: str | None = None
    text: str | None = None


class Overrides(Struct, frozen=True, forbid_unknown_fields=True):
    """What one run may have otherwise than its agent says. It may have less than the agent, never more tools."""

    model: str | None = None
    limits: dict[str, Any] | None = None
    deadline: float | str | None = None
    cost: float | None = None
    tools: tuple[str, ...] | None = None
    output: dict[str, Any] | None = None


class NewRun(Struct, frozen=True, forbid_unknown_fields=True):
    message: Said
    session_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=MOST_ATTACHMENTS)] = ()
    overrides: Overrides | None = None
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] | None = None
    """Seconds to wait for the end before answering."""


class Steer(Struct, frozen=True, forbid_unknown_fields=True):
    message: Said
    mode: SteerMode = "queue"


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """From which step, and what the new run has otherwise."""

    step: Annotated[int, Meta(ge=1)] | None = None
    """Just before this step of the old run; null: before its last."""
    model: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
    message: Said | None = None
    """At the first step in the place of what was asked; later it is said after the results."""
    agent: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """Another agent, by its name."""


class DecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    decision: Decision
    arguments: dict[str, Any] | None = None
    """Run it with these instead."""
    note: Annotated[str, Meta(max_length=10_000)] = ""
    remember: Remember = "once"
    by: Annotated[str, Meta(max_length=200)] = ""
    """Who decides; without it, whoever asks."""


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    text: Said
    by: Annotated[str, Meta(max_length=200)] = ""
    """Who answers; without it, whoever asks."""


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    older_than: Annotated[float, Meta(gt=0)]
    """Seconds since anything happened in a session."""
    agent: str | None = None
    """Only of this agent; null: of all."""


# ── Answers ────────────────────────────────────────────────────────────────────────────────────────


class Accepted(Struct, frozen=True):
    """A run was queued, or a message went to the run that waits in its session."""

    run_id: RunId
    session_id: SessionId
    status: Literal["pending"] = "pending"
    """As far as has been seen: whoever wants to know more looks at the run, or follows it."""


class Delivered(Struct, frozen=True):
    """The sequence of the event in the journal of the run."""

    sequence: int


class Result(Struct, frozen=True):
    """What came of a run."""

    text: str
    reason: str
    next: str
    metrics: Metrics
    stopped: tuple[str, ...] = ()
    unverified_claim: str = ""
    score: float | None = None
    """From 0 to 1, where it was judged."""
    score_reasons: str = ""
    diagnosis: str = ""
    """Why it has failed, where somebody found out."""
    silent: bool = False
    """The agent chose not to answer: `text` is empty on purpose."""


class RunView(Struct, frozen=True):
    run_id: RunId
    session_id: SessionId
    agent: str
    agent_id: AgentId
    parent_run_id: RunId | None
    status: Status
    outcome: OutcomeKind | None
    waiting_for: WaitReason | None
    created_at: datetime
    wake_at: datetime | None
    sequence: int
    """Of its latest event."""
    owner: UserId = LOCAL_USER
    """The user it is for."""


class RunDetail(RunView, frozen=True):
    result: Result | None = None
    """Null until it has ended."""


class ApprovalView(Struct, frozen=True):
    approval_id: ApprovalId
    run_id: RunId
    session_id: SessionId
    agent_id: AgentId
    parent_run_id: RunId | None
    call_id: str
    tool: str
    arguments: str
    """As JSON text: exactly what would run."""
    reason: str
    pattern: str | None
    requested_at: datetime
    expires_at: datetime | None
    decision: Literal["approve", "deny", "expired"] | None
    owner: UserId = LOCAL_USER
    """The user its run is for."""


class SessionView(Struct, frozen=True):
    session_id: SessionId
    agent: str
    first_run: RunId
    runs: int
    unfinished: int
    first_at: datetime
    latest_at: datetime
    segments: int
    owner: UserId = LOCAL_USER
    """The user that all its runs are for."""


class SegmentView(Struct, frozen=True):
    segment_id: SegmentId
    parent: SegmentId
    run_id: RunId
    reason: SegmentReason
    messages: int
    opened_at: datetime


class SessionDetail(SessionView, frozen=True):
    lineage: tuple[SegmentView, ...] = ()


class AgentView(Struct, frozen=True):
    """An agent with all its settings, and whether it takes messages."""

    agent: AgentSpec
    state: str = "running"


class Question(Struct, frozen=True):
    """What an agent has asked and nobody has answered."""

    call_id: str
    question: str
    options: tuple[str, ...] = field(default=())


# ── Records to views, and back ─────────────────────────────────────────────────────────────────────


def moment(at: Instant) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def maybe(at: Instant | None) -> datetime | None:
    """A moment that is far beyond the calendar is none."""
    try:
        return None if at is None else moment(at)
    except (ValueError, OverflowError, OSError):
        return None


def instant(at: datetime | None) -> Instant | None:
    return None if at is None else at.timestamp()


def run_view(record: RunRecord) -> RunView:
    return RunView(**_of_run(record))


def run_detail(record: RunRecord, end: RunEnd | None) -> RunDetail:
    result = None
    if end is not None:
        result = Result(
            end.text,
            end.reason,
            end.next,
            end.metrics,
            end.stopped,
            end.unverified_claim,
            end.score,
            end.score_reasons,
            end.diagnosis,
            silent=end.outcome == "silent",  # also in journals of before `silent` was recorded
        )
    return RunDetail(**_of_run(record), result=result)


def _of_run(record: RunRecord) -> dict[str, Any]:
    origin = record.origin
    return {
        "run_id": origin.run_id,
        "session_id": origin.session_id,
        "agent": record.agent,
        "agent_id": origin.agent_id,
        "parent_run_id": origin.parent_run_id,
        "status": record.status,
        "outcome": record.outcome,
        "waiting_for": record.waiting_for,
        "created_at": moment(record.created_at),
        "wake_at": maybe(record.wake_at),
        "sequence": record.sequence,
        "owner": record.owner,
    }


def run_record(view: RunView) -> RunRecord:
    return RunRecord(
        Origin(view.run_id, view.session_id, view.agent_id, view.parent_run_id),
        view.status,
        view.outcome,
        view.created_at.timestamp(),
        view.sequence,
        instant(view.wake_at),
        view.waiting_for,
        view.agent,
        view.owner,
    )


def approval_view(record: ApprovalRecord) -> ApprovalView:
    origin = record.origin
    return ApprovalView(
        record.approval_id,
        origin.run_id,
        origin.session_id,
        origin.agent_id,
        origin.parent_run_id,
        record.call_id,
        record.tool,
        record.arguments,
        record.reason,
        record.pattern,
        moment(record.requested_at),
        maybe(record.expires_at),
        record.decision,
        record.owner,
    )


def approval_record(view: ApprovalView) -> ApprovalRecord:
    return ApprovalRecord(
        view.approval_id,
        Origin(view.run_id, view.session_id, view.agent_id, view.parent_run_id),
        view.call_id,
        view.tool,
        view.arguments,
        view.reason,
        view.pattern,
        view.requested_at.timestamp(),
        instant(view.expires_at),
        view.decision,
        owner=view.owner,
    )


def session_view(record: SessionRecord) -> SessionView:
    return SessionView(**_of_session(record))


def session_detail(record: SessionRecord, lineage: tuple[SegmentView, ...]) -> SessionDetail:
    return SessionDetail(**_of_session(record), lineage=lineage)


def _of_session(record: SessionRecord) -> dict[str, Any]:
    return {
        "session_id": record.session_id,
        "agent": record.agent,
        "first_run": record.first_run,
        "runs": record.runs,
        "unfinished": record.unfinished,
        "first_at": moment(record.first_at),
        "latest_at": moment(record.latest_at),
        "segments": record.segments,
        "owner": record.owner,
    }


def segment_view(record: SegmentRecord) -> SegmentView:
    return SegmentView(
        record.segment_id, record.parent, record.run_id, record.reason, record.messages, moment(record.opened_at)
    )


def session_record(view: SessionView) -> SessionRecord:
    return SessionRecord(
        view.session_id,
        view.agent,
        view.first_run,
        view.runs,
        view.unfinished,
        view.first_at.timestamp(),
        view.latest_at.timestamp(),
        view.segments,
        view.owner,
    )


def segment_record(view: SegmentView) -> SegmentRecord:
    return SegmentRecord(
        view.segment_id, view.parent, view.run_id, view.reason, view.messages, view.opened_at.timestamp()
    )
