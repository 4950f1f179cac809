"""The parts of the state of a run, each with the fields that change together. Only `fold` changes them."""

from dataclasses import dataclass, field

from treadle.core.context.tokens import TokenCount
from treadle.core.subagents.child import Child
from treadle.core.suspicion import Suspicion
from treadle.core.tools.ledger import Call
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalRequested,
    ClarifyAnswered,
    ClarifyRequested,
    ClientResult,
    CompactionFailed,
    CompactStage,
    ContextCompacted,
    ErrorAnalyzed,
    LlmError,
    LlmResponse,
    QualityScored,
    RecoveryStage,
    RunQueued,
    TrimStage,
)
from treadle.domain.ids import ApprovalId, Instant
from treadle.domain.lineage import TreeCeiling
from treadle.domain.messages import Message
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import Asker
from treadle.domain.runs import Outcome
from treadle.domain.tools import ToolChoice
from treadle.ports.model import Preamble

RoomStage = TrimStage | CompactStage
"""The ways to make room in the context window."""


@dataclass(slots=True)
class Recovery:
    """How far the escalation against being stuck has come."""

    stage: RecoveryStage | None = None
    refused_tool: str | None = None
    """Refused during the step after the decision."""
    report_due: bool = False
    """The next turn has no tools and must report."""
    quiet_steps: int = 0
    """Consecutive steps that brought nothing new."""
    detected_at: int = 0
    """The quiet step or failure count that was last acted on."""


@dataclass(slots=True)
class PromptState:
    """The content of the system prompt."""

    preamble: Preamble = field(default_factory=lambda: Preamble("", ()))
    sections: tuple[str, ...] = ()
    """Sections of the system prompt after the persona."""
    notes: str = ""
    """Notes of the workspace, in the system prompt."""
    guidance: str = ""
    """Guidance on the tools and the working folder, in the system prompt."""
    session_notes: tuple[str, str] | None = None
    """A workspace and the session's notes of it."""
    recalled: str = ""
    """For a fork: memories of the original run in the system prompt."""
    instructions: str = ""
    """The client's instructions in addition to those of the agent."""


@dataclass(slots=True)
class TurnState:
    """The latest reply of the model, its calls, and what is to be sent next."""

    inbox: list[Message] = field(default_factory=list[Message])
    """Messages and notes that have not been sent to the model, in order."""
    reply: LlmResponse | None = None
    """The latest reply, until the next request."""
    calls: list[Call] = field(default_factory=list[Call])
    """The calls of the latest reply."""
    calls_by_id: dict[str, Call] = field(default_factory=dict[str, Call])
    unanswered_calls: int = 0
    """Number of these calls without a result."""
    answer_so_far: str = ""
    """The text of the answer, joined over continuations."""


@dataclass(slots=True)
class ContextState:
    """The size of the transcript, and what was done to keep it within the context window."""

    is_rewritten: bool = False
    """The transcript was changed, not just extended."""
    tokens: TokenCount = field(default_factory=TokenCount)
    """Size of the transcript."""
    counted_by: tuple[str, str] | None = None
    """The provider and model of these counts."""
    tasks: list[Message] = field(default_factory=list[Message])
    """The messages with the run's tasks, which stay in the transcript when others are summarised."""
    ceiling: int | None = None
    """Estimated tokens of the transcript above which a provider has rejected it, whatever its stated limit."""
    stages_used: set[RoomStage] = field(default_factory=set[RoomStage])
    """What was done to make room since the model last replied."""
    is_compacting: bool = False
    """A summary was requested and its end is not on record."""
    compaction: ContextCompacted | CompactionFailed | None = None
    """The result of the latest compaction."""
    failed_at: int = 0
    """Estimated tokens of the transcript when the compaction failed."""
    has_guessed_overflow: bool = False
    """A rejection without a reason was once treated as overflow."""


@dataclass(slots=True)
class AttemptState:
    """Model calls: the one in flight, failed attempts, and what the next one may try."""

    route: str = ""
    """The name that the model was resolved from, or is resolved from next."""
    fallbacks_used: int = 0
    plain: bool = False
    """Reasoning is no longer sent back."""
    filled: bool = False
    """A placeholder replaces missing reasoning, because the provider rejected the transcript without it."""
    unconstrained: bool = False
    """Requests no longer carry the output schema, because the provider rejected it."""
    request: int = 0
    """Sequence of the latest `llm_request`."""
    in_flight: bool = False
    """A request was sent and its end is not on record."""
    failures: int = 0
    """Consecutive failed attempts."""
    failure: LlmError | None = None
    failed_since: Instant = 0.0
    """When the latest attempt failed."""
    has_retried_once: bool = False
    """A failure that may be retried only once was retried since the model last replied."""
    longest_reply: int | None = None
    """Maximum reply tokens that the model has accepted."""
    keys_tried: int = 0
    """Number of other keys that were tried since the model last replied."""
    fallback_reason: str = ""
    """Why the previous model could not continue."""
    retry_at: Instant | None = None


@dataclass(slots=True)
class TreeState:
    """Ancestors and child runs."""

    queued: RunQueued | None = None
    """The request that queued the run, from which child runs inherit."""
    ceilings: tuple[TreeCeiling, ...] = ()
    """Ceilings that the run shares with its ancestors and child runs."""
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    """By call ID, including those that have ended."""
    is_wait_reported: bool = False
    """The run waits for a reviewer, or did just now, and its ancestors know."""


@dataclass(slots=True)
class EvaluationState:
    """The evaluation of how the run ends."""

    evaluator: Child | None = None
    """The child run that evaluates the run's end."""
    verdicts: list[QualityScored] = field(default_factory=list[QualityScored])
    evaluated_request: int = 0
    """The request whose reply was evaluated last."""
    fallback_end: Outcome | None = None
    """An end that was not good enough. It is used if no better one follows."""
    analyzed: ErrorAnalyzed | None = None


@dataclass(slots=True)
class RequestedCall:
    """A call that the client runs."""

    requested_at: Instant
    expires_at: Instant | None
    result: ClientResult | None = None
    delivered_at: Instant = 0.0

    @property
    def duration_ms(self) -> int:
        """The time from the request to the result."""
        return max(0, round((self.delivered_at - self.requested_at) * 1000))


@dataclass(slots=True)
class ReviewState:
    """Approvals, questions and calls of the client's tools, and what came back."""

    asker: Asker | None = None
    """Who sent the message and can be asked back."""
    mode: ApprovalMode | None = None
    """The mode of the session; None: the rules of the agent decide alone."""
    approvals: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    """By call ID: requested approvals."""
    decisions: dict[ApprovalId, ApprovalDecided] = field(default_factory=dict[ApprovalId, ApprovalDecided])
    questions: dict[str, ClarifyRequested] = field(default_factory=dict[str, ClarifyRequested])
    """By call ID: questions to the user."""
    answers: dict[str, ClarifyAnswered] = field(default_factory=dict[str, ClarifyAnswered])
    client_calls: dict[str, RequestedCall] = field(default_factory=dict[str, RequestedCall])
    """By call ID: calls of the client's tools."""
    next_choice: tuple[int, ToolChoice] | None = None
    """What the client chose for a step, with its results, and the number of that step."""


@dataclass(slots=True)
class GuardState:
    """What guards count."""

    recovery: Recovery = field(default_factory=Recovery)
    empty_turns: int = 0
    continuations: int = 0
    rejected_outputs: int = 0
    written_calls: int = 0
    phantom_claims: int = 0
    claimed_answer: tuple[str, str] | None = None
    """An answer with an unverified claim, and the claim. It is delivered if no better answer follows."""
    actions_at_claim: int = 0
    """Number of tool calls started before that answer."""
    hinted_percent: int = 0
    suspicion: Suspicion = field(default_factory=Suspicion)
    """Deaths of workers since the run last made progress."""
