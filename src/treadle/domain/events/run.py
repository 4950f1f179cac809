"""Events of a run from its submission to its end."""

from collections.abc import Mapping
from typing import Literal

from treadle.domain.agents import AgentSpec
from treadle.domain.commands import SessionCommand
from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant, RunId, TokenId
from treadle.domain.labels import Labels
from treadle.domain.lineage import Lineage
from treadle.domain.messages import Message
from treadle.domain.models import UNKNOWN_WINDOW, Profile
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import Asker
from treadle.domain.quotas import Quotas, Shortage
from treadle.domain.runs import Metrics, OutcomeKind, RunPart, Status
from treadle.domain.tools import ClientTool, StandIns, ToolChoice, ToolSpec
from treadle.domain.users import LOCAL_USER, UserId
from treadle.domain.workspaces import Workspace


@durable("run_queued")
class RunQueued(EventData, frozen=True):
    """A run was submitted. It holds the settings of the agent, with the overrides of the run."""

    agent: AgentSpec
    resumed_from: RunId | None = None
    asker: Asker | None = None
    """Where the sender of the message can be asked; null: nowhere."""
    command: SessionCommand | None = None
    """The session command that the run executes, instead of answering a message."""
    token: TokenId | None = None
    """The access token of the request; null: none was required."""
    token_quotas: Quotas | None = None
    """The quotas that all runs of that token share."""
    credits_per_dollar: float = 1.0
    """Credits per dollar of cost."""
    before: tuple[Message, ...] = ()
    """Messages from elsewhere that the conversation of a new session begins with."""
    instructions: str = ""
    """The client's own instructions, which follow those of the agent."""
    lineage: Lineage | None = None
    """The place of a child run in its tree; null: it has no parent."""
    owner: UserId | None = None
    """The user that the session and its child runs belong to. Null: the local user."""
    workspace: Workspace | None = None
    """The folder in which the run works, and its workspace. Null: it works in none."""
    anonymous: bool = False
    """The sender serves several people and did not name one: nothing is recalled or saved as a memory."""
    follows_anonymous: bool = False
    """An earlier run of the conversation is anonymous: a compaction saves no memories."""
    tags: tuple[str, ...] = ()
    """Tags by which lists of runs are filtered."""
    metadata: Mapping[str, str] = {}
    """What a program has noted about the run, by name. Lists of runs are filtered by it."""
    trace_parent: str = ""
    """The span in which the run was submitted, as a W3C `traceparent`: its trace contains the run and the runs
    below it. Empty: the run has a trace of its own."""

    follows: RunPart | None = None
    """The part of a run that the message answers. If its session has gone on, a copy of the conversation up to
    there begins a session of its own. Null: the message continues its session, whatever that has."""
    tool_choice: ToolChoice | None = None
    """Whether the model may, must or must not call tools. That it must applies to the first step. Null: it may."""
    own_deps: bool = False
    """The program submitted it with deps of its own, which are not stored. Another process makes them anew."""
    client_tools: tuple[ClientTool, ...] = ()
    """The tools that the sender of the message runs itself."""
    version: int | None = None
    """The version of the agent, whose settings the run may have changed. Null: a program defines the agent."""
    mode: ApprovalMode | None = None
    """The mode of the session. Null: the approval rules of the agent decide alone."""
    stand_ins: StandIns | None = None
    """Recorded results in place of those of tools, for evaluations. Null: the tools run."""

    @property
    def has_anonymous_words(self) -> bool:
        """Return whether words of its conversation may be those of an unnamed user."""
        return self.anonymous or self.follows_anonymous

    @property
    def labels(self) -> Labels:
        """Return the tags and the metadata together."""
        return Labels(self.tags, dict(self.metadata))

    @property
    def user(self) -> UserId:
        """Return the name of the owner."""
        return LOCAL_USER if self.owner is None else self.owner


@durable("user_message")
class UserMessage(EventData, frozen=True):
    """A user message that the run answers."""

    message: Message


@durable("run_start")
class RunStart(EventData, frozen=True):
    """The first worker claimed the run and found everything that it needs."""

    tools: tuple[ToolSpec, ...]
    sections: tuple[str, ...] = ()
    """Sections of the system prompt after the guidance: house rules, and the skills that can be loaded."""
    notes: str = ""
    """The notes of the workspace, after the sections. The session keeps them even if the file changes."""
    workspace: str = ""
    """The workspace that the notes belong to."""
    guidance: str = ""
    """The section right after the persona: the working folder, and how to use tool results."""
    withheld: tuple[str, ...] = ()
    """Tools of the agent that the run does not have, because its model is small."""
    persona: str | None = None
    """The persona for a small model; null: that of the agent."""
    recall: int | None = None
    """Maximum memories that are recalled for a small model; null: that of the agent."""


ModelChoice = Literal["tier", "fallback"]


@durable("model_resolved")
class ModelResolved(EventData, frozen=True):
    """Which model answers, and why."""

    provider: str
    model: str
    api_mode: str
    reason: str
    route: str = ""
    """The name that was resolved: the agent's model, a tier of its routing or one of its fallbacks."""
    context_window: int = UNKNOWN_WINDOW
    """Tokens."""
    profile: Profile = Profile()
    """The facts about the model that decide what it is sent; without its prices."""
    choice: ModelChoice | None = None
    """Whether a routing tier or a fallback names the model; null: the agent itself does."""
    complexity: int | None = None
    """The complexity of the message, by which the tier was chosen."""
    resolution: str = ""
    """Why the name stands for this model, if `reason` says more than that."""


WaitReason = Literal[
    "retry",
    "interrupted",
    "unavailable",
    "breaker",
    "approval",
    "answer",
    "quota",
    "budget",
    "child",
    "client_tool",
]


@durable("run_waiting")
class RunWaiting(EventData, frozen=True):
    """The run waits for a delivery or until `wake_at`. No worker owns it."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None
    subjects: tuple[str, ...] = ()
    """What it waits for: IDs of approvals, of calls with a question or of a client's tool, and of child runs."""
    shortage: Shortage | None = None
    """The account that has too little left, for `quota` and `budget`."""
    breaker_seconds: float | None = None
    """Seconds for which the model's circuit breaker stays open, for `breaker`."""


RecoveryCause = Literal["worker_died", "engine_failed"]


@durable("run_recovered")
class RunRecovered(EventData, frozen=True):
    """The previous worker died, lost its lease or failed. Another one resumed the run."""

    epoch: int
    reason: str
    alone: bool = True
    """No other run was executing in the worker that died."""
    deaths_lately: int = 0
    """Workers that died in the last minutes, this one included; 0: not counted. Those that died with the same other
    run alone count once."""
    cause: RecoveryCause = "worker_died"
    """worker_died: the previous worker died or lost its lease. engine_failed: the engine raised an exception."""


@durable("trial_started")
class TrialStarted(EventData, frozen=True):
    """The run executes in a trial, because workers died while they executed it. A death of the worker counts only
    against the members of its trial."""

    trial: str
    """ID of the trial. The journal of each member names it."""
    members: int
    """Number of runs in the trial."""


@durable("run_quarantined")
class RunQuarantined(EventData, frozen=True):
    """The worker of the run died several times without progress. The run is not resumed again."""

    recoveries: int


@live("run_fenced", stream="system")
class RunFenced(EventData, frozen=True):
    """A worker found that another worker owns its run. Its write was rejected and its tools were stopped."""

    epoch: int


@durable("run_end")
class RunEnd(EventData, frozen=True):
    """The last event of every run."""

    status: Status
    outcome: OutcomeKind
    metrics: Metrics
    text: str = ""
    """The answer, or what the run produced before it stopped."""
    reason: str = ""
    """Why the run ended, if it did not complete."""
    next: str = ""
    """Whether and how to continue."""
    stopped: tuple[str, ...] = ()
    """The calls in progress that were stopped."""
    unverified_claim: str = ""
    """An action that the answer claims and no call of the run has done."""
    score: float | None = None
    """The score of the answer, from 0 to 1; null: it was not scored."""
    score_reasons: str = ""
    diagnosis: str = ""
    """The diagnosis of a failed run."""
    silent: bool = False
    """The agent chose not to answer: channels deliver nothing."""
    shortage: Shortage | None = None
    """The account whose limit ended the run."""
    mismatch: str = ""
    """Why the last answer does not fit the output schema, if that ended the run."""
