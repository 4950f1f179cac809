"""The state of a run: what its journal amounts to. Only `fold` changes it."""

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
"""What can be done to make room."""


@dataclass(slots=True)
class Recovery:
    """How far the escalation against being stuck has come."""

    stage: RecoveryStage | None = None
    refused_tool: str | None = None
    """Refused while the step after the decision lasts."""
    report_due: bool = False
    """The next turn goes without tools and must report."""
    quiet_steps: int = 0
    """Steps in a row that told nothing new."""
    detected_at: int = 0
    """The quiet step or failure count that was acted on last."""


@dataclass(slots=True)
class RunState:
    """All that a decision may depend on."""

    origin: Origin
    transcript: Transcript
    said_from: int
    """Where in the transcript this run's own messages begin."""
    segment: SegmentOpened
    """What the model is shown of the session: the part that was opened last."""
    segment_at: Instant = 0.0
    """When that was."""
    sequence: int = 0
    latest_at: Instant = 0.0
    """Of the event folded last, and when it happened."""
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
    """The name by which the model was found, or is to be found next."""
    fallbacks_used: int = 0
    plain: bool = False
    """No reasoning is sent back any more."""
    filled: bool = False
    """A blank stands where reasoning is missing: the provider has refused the conversation without it."""

    # The conversation
    inbox: list[Message] = field(default_factory=list[Message])
    """What the model has not been sent yet: messages and notes, in order."""
    reply: LlmResponse | None = None
    """The latest reply, until the next request."""
    calls: list[Call] = field(default_factory=list[Call])
    """The calls of the latest reply."""
    calls_by_id: dict[str, list[Call]] = field(default_factory=dict[str, list[Call]])
    unanswered: int = 0
    """How many of these calls have no result."""
    answer_so_far: str = ""
    """The text of the answer, joined over continuations."""

    asked: str = ""
    """The message that the run was submitted with."""
    unrecalled: list[str] = field(default_factory=list[str])
    """What was said and nothing was recalled for yet."""

    # How the conversation fits
    revised: bool = False
    """The conversation is another one than the run found, with something added."""
    tokens: TokenCount = field(default_factory=TokenCount)
    """How large it is."""
    counted_by: tuple[str, str] | None = None
    """The provider and the model that have counted it."""
    tasks: list[Message] = field(default_factory=list[Message])
    """What the run was asked, as it stands in the conversation: it stays whatever is folded away."""
    ceiling: int | None = None
    """Tokens of the conversation, as guessed: a provider has refused more, whatever it is said to take."""
    spent: set[RoomStage] = field(default_factory=set[RoomStage])
    """What was done to make room since the model last replied."""
    compacting: bool = False
    """A summary was asked for, and nothing is on record of it."""
    compaction: ContextCompacted | CompactionFailed | None = None
    """What came of the latest."""
    failed_at: int = 0
    """How large the conversation was, as guessed, when it failed."""
    shortened: bool = False
    """A refusal without a reason was taken for overflow once."""
    sections: tuple[str, ...] = ()
    """Of the system prompt, after the persona."""
    notes: str = ""
    """Of its workspace, in the system prompt."""
    guidance: str = ""
    """On its tools and its working folder, in the system prompt."""
    result_header: ResultHeader = "full"
    """The line that tool results begin with."""
    kept_notes: tuple[str, str] | None = None
    """A workspace, and what the session keeps of it."""
    recalled: str = ""
    """Memories that the system prompt begins with: those of the run that this one is a fork of."""

    # Commands
    command: SessionCommand | None = None
    """What is to be done to the session: the run does that, and answers no message."""
    obeyed: CommandObeyed | None = None

    # Model calls
    request: int = 0
    """The sequence of the latest `llm_request`."""
    aside: str = ""
    """In older journals: what the latest request sent after the conversation."""
    in_flight: bool = False
    """A request was sent and nothing is on record of its end."""
    failures: int = 0
    """Failed attempts in a row."""
    failure: LlmError | None = None
    failed_since: Instant = 0.0
    """When the latest attempt failed."""
    tried_once: bool = False
    """What may be tried again but once was, since the model last replied."""
    longest_reply: int | None = None
    """Tokens: the model has refused to write longer replies."""
    keys_tried: int = 0
    """Other keys that were tried at once, since the model last replied."""
    fallback_reason: str = ""
    """Why the model that came before could not go on."""
    retry_at: Instant | None = None

    # Deliveries
    cancelled: str | None = None
    interrupted: str | None = None
    """Stop and wait until asked to go on."""
    steered: SteerMode | None = None
    """A message waits in the inbox that the model has not been sent."""

    # Accounts
    accounts: tuple[Ceilings, ...] = ()
    """Those that have an end, of all that it counts for."""
    credits_per_dollar: float = 1.0

    # Runs above it and under it
    queued: RunQueued | None = None
    """What the run was asked for with: children inherit of it."""
    trees: tuple[TreeCeiling, ...] = ()
    """What it shares with those above it and under it."""
    children: dict[str, Child] = field(default_factory=dict[str, Child])
    """By call, those that have ended too."""
    asks_people: bool = False
    """It waits for a person, or did just now, and those above it were told so."""
    judging: Child | None = None
    """The one that judges how the run ends."""
    judged: list[QualityScored] = field(default_factory=list[QualityScored])
    judged_request: int = 0
    """The request whose reply was judged last."""
    kept: Outcome | None = None
    """An end that was not good enough: it is the end if no better one comes."""
    analyzed: ErrorAnalyzed | None = None

    # Questions to people, and their answers
    asker: Asker | None = None
    """Who sent the message and can be asked something back."""
    by_the_clock: bool = False
    """A schedule has sent it, and nobody has said anything to it since."""
    instructions: str = ""
    """What whoever asks wants beside what the agent is told."""
    approvals: dict[str, ApprovalRequested] = field(default_factory=dict[str, ApprovalRequested])
    """By call: what a person was asked to approve."""
    decisions: dict[ApprovalId, ApprovalDecided] = field(default_factory=dict[ApprovalId, ApprovalDecided])
    questions: dict[str, ClarifyRequested] = field(default_factory=dict[str, ClarifyRequested])
    """By call: what a person was asked."""
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
    """An answer that claims what no call has done, and the claim: it goes out if no better one comes."""
    actions_at_claim: int = 0
    """Tool calls that were started before that answer."""
    hinted_percent: int = 0
    suspicion: Suspicion = field(default_factory=Suspicion)
    """The deaths of its workers since it last made progress."""
    stopped: list[str] = field(default_factory=list[str])
    """Calls that were under way when the run was cancelled."""
    waiting: RunWaiting | None = None
    """What the run was last said to wait for, until it goes on or somebody asks it to."""

    step: StepUsage = field(default_factory=StepUsage)
    tally: RunUsage = field(default_factory=RunUsage)

    @property
    def started(self) -> bool:
        return self.started_at is not None

    @property
    def open_calls(self) -> list[Call]:
        """The calls of the latest reply that have no result, in order."""
        return [call for call in self.calls if call.result is None] if self.unanswered else []

    def set_calls(self, calls: list[Call]) -> None:
        """Take the calls of a reply; none of them has a result."""
        self.calls, self.unanswered, self.calls_by_id = calls, len(calls), {}
        for call in calls:
            self.calls_by_id.setdefault(call.call_id, []).append(call)

    def find_calls(self, call_id: str) -> Sequence[Call]:
        """Return the calls of the latest reply with this id; journals of old may hold several."""
        return self.calls_by_id.get(call_id, ())

    @property
    def lineage(self) -> Lineage | None:
        """Whose child it is; None: nobody's."""
        return None if self.queued is None else self.queued.lineage

    @property
    def owner(self) -> UserId:
        """The user the run is for."""
        return LOCAL_USER if self.queued is None else self.queued.user

    @property
    def memories(self) -> MemoryScope:
        """What the run may be reminded of: what its owner has told its agent, or what all owners have, where the
        agent shares its memories."""
        return MemoryScope(self.origin.agent_id, None if self.agent.memory.shared else self.owner)

    @property
    def root(self) -> RunId:
        lineage = self.lineage
        return self.origin.run_id if lineage is None else lineage.root

    @property
    def running(self) -> list[Child]:
        """The children that have not ended."""
        return [child for child in self.children.values() if child.end is None] if self.children else []

    @property
    def steps_of_tree(self) -> int:
        """Its own, and those of all under it that have ended."""
        ended = [child.end.steps for child in self.children.values() if child.end is not None]
        return self.step.number + sum(ended)

    @property
    def answer(self) -> str:
        """The answer so far, as it is handed out: without the marker that ends a run."""
        marker = self.agent.loop.final_marker
        return self.answer_so_far if marker is None else remove_marker(self.answer_so_far, marker)

    @property
    def said(self) -> tuple[Message, ...]:
        """What this run has added to the conversation, with what the model was never sent of it; or the whole
        conversation, where it is another one now."""
        sent = tuple(self.transcript.messages[0 if self.revised else self.said_from :])
        return (*sent, join_messages(self.inbox)) if self.inbox else sent

    @property
    def window(self) -> int:
        """Tokens that the model takes, as the agent's file has it or as far as we know."""
        known = UNKNOWN_WINDOW if self.model is None else self.model.context_window
        said = self.agent.limits.context_window or known
        return said if self.ceiling is None else max(1, min(said, self.tokens.estimate(self.ceiling)))

    def spend(self, usage: Usage, duration_ms: int, cost: float | None) -> None:
        """Enter what a model call has used."""
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
        """Whether a call of this id was made already, by this run or in the conversation that it goes on with."""
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
    """Several messages of the user's side as one, a paragraph each."""
    parts: list[Part] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text) and parts and isinstance(last := parts[-1], Text):
                parts[-1] = Text(f"{last.text}\n\n{part.text}")
            else:
                parts.append(part)
    return Message("user", tuple(parts), preface=preface)


def first_segment(session_id: SessionId) -> SegmentOpened:
    """What a session begins with."""
    segment = first_segment_id(session_id)
    return SegmentOpened(segment, segment, "reset")


def new_state(
    origin: Origin, history: Sequence[Message] = (), session: SessionFacts = NO_SESSION_FACTS
) -> RunState:
    """The state of a run to which nothing has happened yet, in a session that has said `history`."""
    return new_state_on(origin, make_transcript(history), session)


def new_state_on(origin: Origin, transcript: Transcript, session: SessionFacts = NO_SESSION_FACTS) -> RunState:
    """The state of a run to which nothing has happened yet. It goes on with this conversation, in place."""
    opened = session.segment or first_segment(origin.session_id)
    state = RunState(origin, transcript, said_from=len(transcript.messages), segment=opened)
    state.kept_notes, state.segment_at = session.notes, session.segment_at
    return state
