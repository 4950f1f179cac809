"""The life of a run, from its submission to its end."""

from typing import Literal

from treadle.domain.agents import AgentSpec
from treadle.domain.commands import SessionCommand
from treadle.domain.events.definitions import EventData, durable, live
from treadle.domain.ids import Instant, RunId, TokenId
from treadle.domain.lineage import Lineage
from treadle.domain.messages import Message
from treadle.domain.models import UNKNOWN_WINDOW, Profile
from treadle.domain.observations import ResultHeader
from treadle.domain.permissions import Asker
from treadle.domain.quotas import Quotas
from treadle.domain.runs import Metrics, OutcomeKind, Status
from treadle.domain.tools import ToolSpec
from treadle.domain.users import LOCAL_USER, UserId


@durable("run_queued")
class RunQueued(EventData, frozen=True):
    """A run was submitted. It holds the settings of the agent, with the overrides of the run."""

    agent: AgentSpec
    resumed_from: RunId | None = None
    asker: Asker | None = None
    """Who sent the message and can be asked something back; None: nobody."""
    command: SessionCommand | None = None
    """It is no message that is to be answered, but something to be done to the session."""
    token: TokenId | None = None
    """The access token it was asked for with; None: nobody needed one."""
    token_quotas: Quotas | None = None
    """What all runs of that token may use together."""
    credits_per_dollar: float = 1.0
    """How its cost becomes credits."""
    before: tuple[Message, ...] = ()
    """What was said before, elsewhere: the conversation of a new session begins with it."""
    instructions: str = ""
    """What whoever asks wants beside what the agent is told; it stands after that."""
    lineage: Lineage | None = None
    """Whose child it is; None: nobody's."""
    owner: UserId | None = None
    """The user it is for: that of its session, and of every run under it. None: the local user."""

    @property
    def user(self) -> UserId:
        """The owner by name."""
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
    """What the system prompt has after the persona: house rules, and the skills that may be loaded."""
    notes: str = ""
    """What it has after that: the notes of the workspace, which the session keeps, however they change."""
    workspace: str = ""
    """Whose they are."""
    guidance: str = ""
    """What it has right after the persona: the working folder, and not to invent what tools return."""
    result_header: ResultHeader = "full"
    """The line that tool results begin with, in this run."""


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


WaitReason = Literal[
    "retry", "interrupted", "unavailable", "breaker", "approval", "answer", "quota", "budget", "child"
]


@durable("run_waiting")
class RunWaiting(EventData, frozen=True):
    """The run waits for a delivery or until `wake_at`. No process holds it."""

    reason: WaitReason
    detail: str
    wake_at: Instant | None = None


@durable("run_recovered")
class RunRecovered(EventData, frozen=True):
    """The previous worker died, lost its lease or failed. Another one resumed the run."""

    epoch: int
    reason: str
    alone: bool = True
    """No other run was executing in the worker that died."""
    deaths_lately: int = 0
    """Workers that died in the last minutes, this one included; 0: not counted."""


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
    """What was produced, also where the run did not complete."""
    reason: str = ""
    next: str = ""
    """Whether and how to go on."""
    stopped: tuple[str, ...] = ()
    """The calls that were under way and had to be stopped."""
    unverified_claim: str = ""
    """What the answer claims to have done and no call bears out, even when asked."""
    score: float | None = None
    """From 0 to 1, what was produced was judged to be worth; None: nobody has judged it."""
    score_reasons: str = ""
    diagnosis: str = ""
    """Why it has failed, as somebody found out."""
    silent: bool = False
    """The agent chose not to answer: channels deliver nothing."""
