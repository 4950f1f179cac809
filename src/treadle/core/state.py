"""The state of a run, folded from its journal. Only `fold` changes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.core.context.transcript import Transcript, make_transcript
from treadle.core.final_marker import remove_marker
from treadle.core.sub_states import (
    AttemptState,
    ContextState,
    EvaluationState,
    GuardState,
    PromptState,
    ReviewState,
    TreeState,
    TurnState,
)
from treadle.core.subagents.child import Child
from treadle.core.tools.ledger import Call, Ledger
from treadle.core.usage import RunUsage, StepUsage
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import SessionCommand
from treadle.domain.envelope import Origin
from treadle.domain.events import (
    CommandObeyed,
    LlmResponse,
    ModelResolved,
    RunWaiting,
    SegmentOpened,
    SteerMode,
)
from treadle.domain.ids import Instant, RunId, SessionId, first_segment_id
from treadle.domain.inert_text import has_visible
from treadle.domain.lineage import Lineage
from treadle.domain.memories import MemoryScope
from treadle.domain.messages import Message, Part, Text
from treadle.domain.models import UNKNOWN_WINDOW
from treadle.domain.runs import Metrics, OutcomeKind, Status, Usage
from treadle.domain.tools import ToolSpec
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.accounts import Ceilings
from treadle.ports.journal import SessionFacts

NO_SESSION_FACTS = SessionFacts()


@dataclass(slots=True)
class RunState:
    """Everything that a decision may depend on."""

    origin: Origin
    transcript: Transcript
    own_messages_start: int
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
    started_at: Instant | None = None
    deadline: Instant | None = None
    tools: dict[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    model: ModelResolved | None = None
    submitted_text: str = ""
    """The message that the run was submitted with."""
    texts_to_recall: list[str] = field(default_factory=list[str])
    """Messages for which no memories were recalled yet."""
    command: SessionCommand | None = None
    """The session command that the run executes instead of answering a message."""
    command_result: CommandObeyed | None = None
    cancelled: str | None = None
    interrupted: str | None = None
    """Stop and wait until resumed."""
    steer_mode: SteerMode | None = None
    """The inbox has a message that was not sent to the model."""
    accounts: tuple[Ceilings, ...] = ()
    """The bounded accounts that the run counts for."""
    credits_per_dollar: float = 1.0
    is_scheduled: bool = False
    """A schedule started the run, and no message was sent to it since."""
    ledger: Ledger = field(default_factory=Ledger)
    stopped: list[str] = field(default_factory=list[str])
    """Calls in progress when the run was cancelled."""
    waiting: RunWaiting | None = None
    """What the run was last reported to wait for, until it continues or something is delivered."""
    step: StepUsage = field(default_factory=StepUsage)
    usage: RunUsage = field(default_factory=RunUsage)
    prompt: PromptState = field(default_factory=PromptState)
    turn: TurnState = field(default_factory=TurnState)
    context: ContextState = field(default_factory=ContextState)
    attempts: AttemptState = field(default_factory=AttemptState)
    tree: TreeState = field(default_factory=TreeState)
    evaluation: EvaluationState = field(default_factory=EvaluationState)
    review: ReviewState = field(default_factory=ReviewState)
    guards: GuardState = field(default_factory=GuardState)

    @property
    def has_started(self) -> bool:
        return self.started_at is not None

    @property
    def open_calls(self) -> list[Call]:
        """The calls of the latest reply without a result, in order."""
        return [call for call in self.turn.calls if call.result is None] if self.turn.unanswered_calls else []

    def set_calls(self, calls: list[Call]) -> None:
        """Set the calls of a reply. None of them has a result."""
        turn = self.turn
        turn.calls, turn.unanswered_calls = calls, len(calls)
        turn.calls_by_id = {call.call_id: call for call in calls}

    def find_call(self, call_id: str) -> Call | None:
        """Return the call of the latest reply with this ID, or None."""
        return self.turn.calls_by_id.get(call_id)

    @property
    def lineage(self) -> Lineage | None:
        """The lineage of a child run, or None."""
        return None if self.tree.queued is None else self.tree.queued.lineage

    @property
    def owner(self) -> UserId:
        """The user whom the run is for."""
        return LOCAL_USER if self.tree.queued is None else self.tree.queued.user

    @property
    def workspace(self) -> WorkspaceId:
        """The workspace of the run."""
        queued = self.tree.queued
        return NO_WORKSPACE if queued is None or queued.workspace is None else queued.workspace.id

    @property
    def recalls_by_workspace(self) -> bool:
        """Whether recall is limited to the workspace of the run."""
        if (scope := self.agent.memory.scope) is not None:
            return scope == "workspace"
        return self.command is not None or any("workspace" in tool.needs for tool in self.tools.values())

    @property
    def is_anonymous(self) -> bool:
        """Whether the sender did not name its user, so that nothing is recalled or saved."""
        return self.tree.queued is not None and self.tree.queued.anonymous

    @property
    def has_anonymous_words(self) -> bool:
        """Whether words of the conversation may be those of an unnamed user, so that a compaction saves nothing."""
        return self.tree.queued is not None and self.tree.queued.has_anonymous_words

    @property
    def memories(self) -> MemoryScope:
        """The memories that the run may recall: its owner's, or all of the agent's if the agent shares them; of its
        workspace, or of all workspaces."""
        settings = self.agent.memory
        return MemoryScope(
            self.origin.agent_id,
            None if settings.shared else self.owner,
            self.workspace if self.recalls_by_workspace else None,
        )

    @property
    def root(self) -> RunId:
        lineage = self.lineage
        return self.origin.run_id if lineage is None else lineage.root

    @property
    def running_children(self) -> list[Child]:
        """The child runs that have not ended."""
        return [child for child in self.tree.children.values() if child.end is None] if self.tree.children else []

    @property
    def steps_of_tree(self) -> int:
        """Steps of the run and of its child runs that have ended."""
        ended = [child.end.steps for child in self.tree.children.values() if child.end is not None]
        return self.step.number + sum(ended)

    @property
    def answer(self) -> str:
        """The answer so far, without the final marker."""
        marker = self.agent.loop.final_marker
        return self.turn.answer_so_far if marker is None else remove_marker(self.turn.answer_so_far, marker)

    @property
    def own_messages(self) -> tuple[Message, ...]:
        """The messages that this run added, including those not sent yet, or the whole transcript if it was
        changed."""
        sent = tuple(self.transcript.messages[0 if self.context.is_rewritten else self.own_messages_start :])
        return (*sent, join_messages(self.turn.inbox)) if self.turn.inbox else sent

    @property
    def window(self) -> int:
        """The context window in tokens, as set by the agent or as known."""
        known = UNKNOWN_WINDOW if self.model is None else self.model.context_window
        stated, ceiling = self.agent.limits.context_window or known, self.context.ceiling
        return stated if ceiling is None else max(1, min(stated, self.context.tokens.estimate(ceiling)))

    def spend(self, usage: Usage, duration_ms: int, cost: float | None) -> None:
        """Add the usage of a model call."""
        tally, step = self.usage, self.step
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
        tally = self.usage
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
    """Return whether the reply has visible text."""
    return any(isinstance(part, Text) and has_visible(part.text) for part in reply.parts)


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
    state = RunState(origin, transcript, own_messages_start=len(transcript.messages), segment=opened)
    state.prompt.session_notes, state.segment_at = session.notes, session.segment_at
    return state
