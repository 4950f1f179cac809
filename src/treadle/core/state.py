"""The state of a run, folded from its journal. Only `fold` changes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.core.context.tokens import TokenCount
from treadle.core.context.transcript import Transcript, make_transcript
from treadle.core.final_marker import remove_marker
from treadle.core.subagents.child import Child
from treadle.core.suspicion import Suspicion
from treadle.core.tools.ledger import Call, Ledger
from treadle.core.usage import RunUsage, StepUsage
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import SessionCommand
from treadle.domain.envelope import Origin
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalRequested,
    ClarifyAnswered,
    ClarifyRequested,
    CommandObeyed,
    CompactionFailed,
    CompactStage,
    ContextCompacted,
    ErrorAnalyzed,
    LlmError,
    LlmResponse,
    ModelResolved,
    QualityScored,
    RecoveryStage,
    RunQueued,
    RunWaiting,
    SegmentOpened,
    SteerMode,
    TrimStage,
)
from treadle.domain.ids import ApprovalId, Instant, RunId, SessionId, first_segment_id
from treadle.domain.lineage import Lineage, TreeCeiling
from treadle.domain.memories import MemoryScope
from treadle.domain.messages import Message, Part, Text
from treadle.domain.models import UNKNOWN_WINDOW
from treadle.domain.observations import ResultHeader
from treadle.domain.permissions import Asker
from treadle.domain.runs import Metrics, Outcome, OutcomeKind, Status, Usage
from treadle.domain.tools import ToolSpec
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.accounts import Ceilings
from treadle.ports.journal import SessionFacts
from treadle.ports.model import Preamble

NO_SESSION_FACTS = SessionFacts()
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
class RunState:
    """Everything that a decision may depend on."""

    origin: Origin
    transcript: Transcript
    said_from: int
    """Index in the transcript at which this run's own messages begin."""
    segment: SegmentOpened
    """The segment of the session that the model is shown."""
    segment_at: Instant = 0.0
    """When the segment was opened."""
    sequence: int = 0
    latest_at: Instant = 0.0
    """Sequence and time of the last folded event."""
    agent: AgentSpec = field(default_factory=lambda: AgentSpec("unknown", "unknown"))
    status: Status = "pending"
    outcome: OutcomeKind | None = None

    # Set when the run starts
    started_at: Instant | None = None
    deadline: Instant | None = None
    tools: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    preamble: Preamble = field(default_factory=lambda: Preamble("", ()))
    model: ModelResolved | None = None
    route: str = ""
    """The name that the model was resolved from, or is resolved from next."""
    fallbacks_used: int = 0
    plain: bool = False
    """Reasoning is no longer sent back."""
    filled: bool = False
    """A placeholder replaces missing reasoning, because the provider rejected the transcript without it."""

    # Transcript
    inbox: list[Message] = field(default_factory=list[Message])
    """Messages and notes that have not been sent to the model, in order."""
    reply: LlmResponse | None = None
    """The latest reply, until the next request."""
    calls: list[Call] = field(default_factory=list[Call])
    """The calls of the latest reply."""
    calls_by_id: dict[str, list[Call]] = field(default_factory=dict[str, list[Call]])
    unanswered: int = 0
    """Number of these calls without a result."""
    answer_so_far: str = ""
    """The text of the answer, joined over continuations."""

    asked: str = ""
    """The message that the run was submitted with."""
    unrecalled: list[str] = field(default_factory=list[str])
    """Messages for which no memories were recalled yet."""

    # Context budget
    revised: bool = False
    """The transcript was changed, not just extended."""
    tokens: TokenCount = field(default_factory=TokenCount)
    """Size of the transcript."""
    counted_by: tuple[str, str] | None = None
    """The provider and model of these counts."""
    tasks: list[Message] = field(default_factory=list[Message])
    """The messages with the run's tasks, which stay in the transcript when others are summarised."""
    ceiling: int | None = None
    """Estimated tokens of the transcript above which a provider has rejected it, whatever its stated limit."""
    spent: set[RoomStage] = field(default_factory=set[RoomStage])
    """What was done to make room since the model last replied."""
    compacting: bool = False
    """A summary was requested and its end is not on record."""
    compaction: ContextCompacted | CompactionFailed | None = None
    """The result of the latest compaction."""
    failed_at: int = 0
    """Estimated tokens of the transcript when the compaction failed."""
    shortened: bool = False
    """A rejection without a reason was once treated as overflow."""
    sections: tuple[str, ...] = ()
    """Sections of the system prompt after the persona."""
    notes: str = ""
    """Notes of the workspace, in the system prompt."""
    guidance: str = ""
    """Guidance on the tools and the working folder, in the system prompt."""
    result_header: ResultHeader = "full"
    """The form of the line that tool results begin with."""
    kept_notes: tuple[str, str] | None = None
    """A workspace and the session's notes of it."""
    recalled: str = ""
    """For a fork: memories of the original run in the system prompt."""

    # Commands
    command: SessionCommand | None = None
    """The session command that the run executes instead of answering a message."""
    obeyed: CommandObeyed | None = None

    # Model calls
    request: int = 0
    """Sequence of the latest `llm_request`."""
    aside: str = ""
    """In older journals: what the latest request sent after the transcript."""
    in_flight: bool = False
    """A request was sent and its end is not on record."""
    failures: int = 0
    """Consecutive failed attempts."""
    failure: LlmError | None = None
    failed_since: Instant = 0.0
    """When the latest attempt failed."""
    tried_once: bool = False
    """A failure that may be retried only once was retried since the model last replied."""
    longest_reply: int | None = None
    """Maximum reply tokens that the model has accepted."""
    keys_tried: int = 0
    """Number of other keys that were tried since the model last replied."""
    fallback_reason: str = ""
    """Why the previous model could not continue."""
    retry_at: Instant | None = None

    # Deliveries
    cancelled: str | None = None
    interrupted: str | None = None
    """Stop and wait until resumed."""
    steered: SteerMode | None = None
    """The inbox has a message that was not sent to the model."""

    # Accounts
    accounts: tuple[Ceilings, ...] = ()
    """The bounded accounts that the run counts for."""
    credits_per_dollar: float = 1.0

    # Ancestors and child runs
    queued: RunQueued | None = None
    """The request that queued the run, from which child runs inherit."""
    trees: tuple[TreeCeiling, ...] = ()
    """Ceilings that the run shares with its ancestors and child runs."""
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    """By call ID, including those that have ended."""
    asks_people: bool = False
    """The run waits for a reviewer, or did just now, and its ancestors know."""
    judging: Child | None = None
    """The child run that evaluates the run's end."""
    judged: list[QualityScored] = field(default_factory=list[QualityScored])
    judged_request: int = 0
    """The request whose reply was evaluated last."""
    kept: Outcome | None = None
    """An end that was not good enough. It is used if no better one follows."""
    analyzed: ErrorAnalyzed | None = None

    # Questions to people, and their answers
    asker: Asker | None = None
    """Who sent the message and can be asked back."""
    by_the_clock: bool = False
    """A schedule started the run, and no message was sent to it since."""
    instructions: str = ""
    """The client's instructions in addition to those of the agent."""
    approvals: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    """By call ID: requested approvals."""
    decisions: dict[ApprovalId, ApprovalDecided] = field(default_factory=dict[ApprovalId, ApprovalDecided])
    questions: dict[str, ClarifyRequested] = field(default_factory=dict[str, ClarifyRequested])
    """By call ID: questions to the user."""
    answers: dict[str, ClarifyAnswered] = field(default_factory=dict[str, ClarifyAnswered])

    # Guards
    ledger: Ledger = field(default_factory=Ledger)
    recovery: Recovery = field(default_factory=Recovery)
    empty_turns: int = 0
    continuations: int = 0
    rejected_outputs: int = 0
    written_calls: int = 0
    phantom_claims: int = 0
    claimed: tuple[str, str] | None = None
    """An answer with an unverified claim, and the claim. It is delivered if no better answer follows."""
    actions_at_claim: int = 0
    """Number of tool calls started before that answer."""
    hinted_percent: int = 0
    suspicion: Suspicion = field(default_factory=Suspicion)
    """Deaths of workers since the run last made progress."""
    stopped: list[str] = field(default_factory=list[str])
    """Calls in progress when the run was cancelled."""
    waiting: RunWaiting | None = None
    """What the run was last reported to wait for, until it continues or something is delivered."""

    step: StepUsage = field(default_factory=StepUsage)
    tally: RunUsage = field(default_factory=RunUsage)

    @property
    def started(self) -> bool:
        return self.started_at is not None

    @property
    def open_calls(self) -> list[Call]:
        """The calls of the latest reply without a result, in order."""
        return [call for call in self.calls if call.result is None] if self.unanswered else []

    def set_calls(self, calls: list[Call]) -> None:
        """Set the calls of a reply. None of them has a result."""
        self.calls, self.unanswered, self.calls_by_id = calls, len(calls), {}
        for call in calls:
            self.calls_by_id.setdefault(call.call_id, []).append(call)

    def find_calls(self, call_id: str) -> Sequence[Call]:
        """Return the calls of the latest reply with this ID. Old journals may have several."""
        return self.calls_by_id.get(call_id, ())

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of a child run, or None."""
        return None if self.queued is None else self.queued.lineage

    @property
    def owner(self) -> UserId:
        """The user whom the run is for."""
        return LOCAL_USER if self.queued is None else self.queued.user

    @property
    def memories(self) -> MemoryScope:
        """The memories that the run may recall: its owner's, or all of the agent's if the agent shares them."""
        return MemoryScope(self.origin.agent_id, None if self.agent.memory.shared else self.owner)

    @property
    def root(self) -> RunId:
        lineage = self.lineage
        return self.origin.run_id if lineage is None else lineage.root

    @property
    def running(self) -> list[Child]:
        """The child runs that have not ended."""
        return [child for child in self.children.values() if child.end is None] if self.children else []

    @property
    def steps_of_tree(self) -> int:
        """Steps of the run and of its child runs that have ended."""
        ended = [child.end.steps for child in self.children.values() if child.end is not None]
        return self.step.number + sum(ended)

    @property
    def answer(self) -> str:
        """The answer so far, without the final marker."""
        marker = self.agent.loop.final_marker
        return self.answer_so_far if marker is None else remove_marker(self.answer_so_far, marker)

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages that this run added, including those not sent yet, or the whole transcript if it was
        changed."""
        sent = tuple(self.transcript.messages[0 if self.revised else self.said_from :])
        return (*sent, join_messages(self.inbox)) if self.inbox else sent

    @property
    def window(self) -> int:
        """The context window in tokens, as set by the agent or as known."""
        known = UNKNOWN_WINDOW if self.model is None else self.model.context_window
        said = self.agent.limits.context_window or known
        return said if self.ceiling is None else max(1, min(said, self.tokens.estimate(self.ceiling)))

    def spend(self, usage: Usage, duration_ms: int, cost: float | None) -> None:
        """Add the usage of a model call."""
        tally, step = self.tally, self.step
        tally.input_tokens += usage.input_tokens
        tally.output_tokens += usage.output_tokens
        tally.cache_read_tokens += usage.cache_read_tokens
        tally.cache_write_tokens += usage.cache_write_tokens
        tally.estimated = tally.estimated or usage.estimated
        tally.model_ms += duration_ms
        if cost is None:
            tally.unpriced_calls += 1
        else:
            tally.cost += cost
        step.input_tokens += usage.input_tokens
        step.output_tokens += usage.output_tokens

    def knows_call(self, call_id: str) -> bool:
        """Return whether a call with this ID was made by this run or in the transcript that it continues."""
        return call_id in self.ledger.ids or self.transcript.has_call(call_id)

    def metrics(self, now: Instant) -> Metrics:
        tally = self.tally
        return Metrics(
            steps=self.step.number,
            model_calls=tally.model_calls,
            repeated_calls=tally.repeated_calls,
            actions=tally.actions,
            input_tokens=tally.input_tokens,
            output_tokens=tally.output_tokens,
            cache_read_tokens=tally.cache_read_tokens,
            cache_write_tokens=tally.cache_write_tokens,
            estimated=tally.estimated,
            cost=tally.cost,
            credits=tally.cost * self.credits_per_dollar,
            unpriced_calls=tally.unpriced_calls,
            duration_ms=0 if self.started_at is None else max(0, round((now - self.started_at) * 1000)),
            model_ms=tally.model_ms,
            tool_ms=tally.tool_ms,
            first_token_ms=tally.first_token_ms,
        )


def has_text(reply: LlmResponse) -> bool:
    return any(isinstance(part, Text) and part.text.strip() for part in reply.parts)


def join_messages(messages: list[Message], preface: str = "") -> Message:
    """Return several user messages as one, a paragraph each."""
    parts: list[Part] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and parts and isinstance(last := parts[-1], Text):
                parts[-1] = Text(f"{last.text}\n\n{part.text}")
            else:
                parts.append(part)
    return Message("user", tuple(parts), preface=preface)


def first_segment(session_id: SessionId) -> SegmentOpened:
    """Return the segment that a session begins with."""
    segment = first_segment_id(session_id)
    return SegmentOpened(segment, segment, "reset")


def new_state(
    origin: Origin, history: Sequence[Message] = (), session: SessionFacts = NO_SESSION_FACTS
) -> RunState:
    """Return the initial state of a run in a session with this history."""
    return new_state_on(origin, make_transcript(history), session)


def new_state_on(origin: Origin, transcript: Transcript, session: SessionFacts = NO_SESSION_FACTS) -> RunState:
    """Return the initial state of a run that continues this transcript in place."""
    opened = session.segment or first_segment(origin.session_id)
    state = RunState(origin, transcript, said_from=len(transcript.messages), segment=opened)
    state.kept_notes, state.segment_at = session.notes, session.segment_at
    return state
