"""The journal: a permanent, ordered record of events. It provides all safety.

There are two kinds of append. *Advance* is for the worker that owns the run. It carries the run's epoch, which a
worker gets by claiming the run and loses when another worker claims it. *Deliver* is for everyone else. If there
are deliveries that the worker has not seen, an advance still records its facts, because they happened, but not its
intents, because they were decided without that knowledge."""

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import StoreError
from treadle.domain.events import SegmentOpened, WaitReason
from treadle.domain.graphemes import make_printable_line, truncate
from treadle.domain.ids import AgentId, Instant, RunId, SessionId
from treadle.domain.labels import NO_LABELS, Labels
from treadle.domain.messages import Message
from treadle.domain.quotas import Shortage
from treadle.domain.runs import NO_FACTS, OutcomeKind, RunFacts, Status
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.accounts import Reserve

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
RECENT_DEATH_SECONDS = 600.0
"""How long the death of a worker counts as recent."""


class SessionFacts(Struct, frozen=True):
    """What a session has established for all of its runs."""

    segment: SegmentOpened | None = None
    """The latest segment; None if there is only the first one."""
    segment_at: Instant = 0.0
    """When that segment was opened."""
    notes: tuple[str, str] | None = None
    """A workspace, and the notes from it that the system prompt contains; None until they are read."""
    last: RunId | None = None
    """The previous run that added to the conversation; None if the conversation is empty."""


class Death(Struct, frozen=True):
    """A worker that died, or lost its lease, while it owned a run."""

    alone: bool = True
    """It owned no other run."""
    lately: int = 0
    """Number of workers that died within `RECENT_DEATH_SECONDS`, including this one. Those that died with the same
    other run alone count once: that run explains them."""


class Claim(Struct, frozen=True):
    """The right of a worker to advance a run, with the events of the run."""

    origin: Origin
    epoch: int
    events: tuple[Event, ...]
    death: Death | None = None
    """How the previous worker lost the run; None if it released the run or there was none."""
    session: SessionFacts = SessionFacts()


class Release(Struct, frozen=True, gc=False):
    """Give up ownership of a run, together with the intents of the same advance. Refused if they are refused."""

    waiting_for: WaitReason | None = None
    wake_at: Instant | None = None
    """When to work on the run again without a delivery; None: only after a delivery."""
    said: tuple[Message, ...] | None = None
    """For a run that ends: the messages that it adds to the conversation of its session."""
    whole: bool = False
    """`said` replaces the conversation instead of extending it."""


class RunDraft(Struct, frozen=True, gc=False):
    """A run to create. It is runnable at once."""

    origin: Origin
    events: tuple[Draft, ...]
    """The first events of the run."""


class RunMessage(Struct, frozen=True, gc=False):
    """A delivery to another run, as by `Journal.deliver`. It is dropped if that run has ended or does not exist."""

    run_id: RunId
    event: Draft
    key: str


class Advance(Struct, frozen=True, gc=False):
    """What the owner of a run appends in one commit."""

    run_id: RunId
    epoch: int
    seen: int
    """The last sequence that the owner has applied to its state."""
    facts: tuple[Draft, ...] = ()
    """Events that have happened. They are always recorded."""
    intents: tuple[Draft, ...] = ()
    """Events that are about to happen. They are recorded only if nothing was delivered after `seen`."""
    release: Release | None = None
    reserve: Reserve | None = None
    """The most that the intents can use. They are refused if an account does not have it."""
    begin: tuple[RunDraft, ...] = ()
    """Child runs to create together with the intents."""
    tell: tuple[RunMessage, ...] = ()
    """Deliveries to other runs, made together with the intents."""
    key: str | None = None
    """The key of the first fact, if it was delivered to the owner itself, as by `Journal.deliver`. The other facts
    follow from it. If anything else was delivered after `seen`, nothing is recorded."""


ANY = 2**62
"""For `seen`: release the run whatever was delivered, for a worker that is about to stop."""


class Advanced(Struct, frozen=True, gc=False):
    accepted: bool
    """Whether the intents and the release were recorded."""
    delivered: tuple[Event, ...]
    """Events that others appended after `seen`. They come before the facts."""
    sequence: int
    """The last sequence of the run now."""
    refused: Shortage | None = None
    """The account that lacked what the intents would reserve, if that is why they were refused."""
    near: tuple[Shortage, ...] = ()
    """Accounts that are close to their ceiling. Each is reported once per window."""


class Publisher(Protocol):
    """Is notified of commits, in order, on the event loop. Must not block."""

    def on_committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """These events are durable. The first has the sequence `first`; the others follow without gaps."""
        ...

    def on_delivered(self, run_id: RunId) -> None:
        """A process or caller other than the owner has appended to this run."""
        ...

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Work on this run at this time."""
        ...

    def on_lost(self, error: StoreError) -> None:
        """The store can no longer make anything durable. Everything that waits for it must fail with this error."""
        ...


class RunRecord(Struct, frozen=True):
    """A run as lists show it, updated in the transaction of its events."""

    origin: Origin
    status: Status
    outcome: OutcomeKind | None
    created_at: Instant
    sequence: int
    wake_at: Instant | None
    waiting_for: WaitReason | None
    agent: str = ""
    """The name of its agent."""
    owner: UserId = LOCAL_USER
    """The user of the run, from its `run_queued` event."""
    message: str = ""
    """The beginning of the message that it answers."""
    cost: float | None = None
    """Dollars. While the run is in progress, this and the next two are a few seconds old."""
    tokens: int | None = None
    steps: int | None = None
    duration_ms: int | None = None
    """None until it has ended."""
    labels: Labels = NO_LABELS
    facts: RunFacts = NO_FACTS


class Submitted(Struct, frozen=True):
    """The run that a submission created or was delivered to."""

    run_id: RunId
    sequence: int = 0
    """Sequence of the delivered message; 0: the submission created the run."""


RunOrder = Literal["created", "cost", "tokens", "steps", "duration", "score"]
"""What a list of runs is sorted by."""


class RunSums(Struct, frozen=True):
    """How many runs there are, and what they used together."""

    runs: int = 0
    failed: int = 0
    cost: float = 0.0
    """Dollars, as far as prices are known."""
    tokens: int = 0


class RunFilter(Struct, frozen=True):
    """Selects runs. None means no restriction."""

    agents: tuple[str, ...] | None = None
    session_id: SessionId | None = None
    parent_run_id: RunId | None = None
    status: Status | None = None
    outcome: OutcomeKind | None = None
    before: RunId | None = None
    """Only runs that were created before this one."""
    unfinished: bool = False
    """Only runs that have not ended."""
    owners: tuple[UserId, ...] | None = None
    """Only runs of these users."""
    id_prefix: str | None = None
    """Only those whose id begins with this."""
    id_suffix: str | None = None
    """Only those whose id ends with this."""
    since: Instant | None = None
    """Only those that were created at this time or later."""
    until: Instant | None = None
    """Only those that were created before this time."""
    text: str | None = None
    """Only those whose message begins with a part that contains this, in any case."""
    min_cost: float | None = None
    """Only those that cost at least this much, in dollars."""
    labels: Labels = NO_LABELS
    """Only those that have all of these tags and metadata."""
    order: RunOrder = "created"
    """The largest first. Runs without a value are last."""
    ascending: bool = False
    """The smallest first; only for an order of its own, other than `created`."""

    @property
    def only_owner(self) -> UserId | None:
        """The owner of all matching runs, if there is only one."""
        return self.owners[0] if self.owners is not None and len(self.owners) == 1 else None


MESSAGE_CHARACTERS = 200
"""How much of the message of a run lists show and search."""


def summarize_message(text: str) -> str:
    """Return the beginning of a message as one line of printable characters."""
    return truncate(make_printable_line(text[: MESSAGE_CHARACTERS * 4]), MESSAGE_CHARACTERS)


ALL_RUNS = RunFilter()


class PositionedEvent(Struct, frozen=True, gc=False):
    """An event with its position in the order of commits over all runs."""

    position: int
    event: Event


class Journal(Protocol):
    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        """Create a run with its first events, runnable at once, and return its id.

        If the key was used before, create nothing and return the id of that run. All runs of a session have one
        owner: raise SessionTaken, and create nothing, if the session has another owner. A run that follows another
        one (`RunQueued.follows`) is created only while that is the latest of the session, or in a session without
        runs: otherwise raise SessionContinued."""
        ...

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        """Start a new epoch of a run and return it with the run's events.

        Raise NotClaimable if another worker holds the lease, if the run has ended, or if an earlier run of its
        session has not ended (unless this run was cancelled before it started). Raise UnknownRun if there is no
        such run."""
        ...

    async def advance(self, advance: Advance) -> Advanced:
        """Append as the owner.

        In these cases it writes nothing: raise Fenced if the epoch has changed, or if something was delivered after
        `seen` and the first fact has a key; SessionDeleted if a new run would start in a deleted session,
        SessionTaken if that session has another owner."""
        ...

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        """Append to a run that the caller does not own, make the run runnable, and return the event's sequence.

        A key that was used before appends nothing and returns the sequence of the first event. Return None if the
        run has ended, because nothing follows `run_end`. Raise InvalidState for an answer to an approval that is no
        longer open, and Fenced if the run has events after `seen`: what the caller knows of it is out of date."""
        ...

    async def history(self, run_id: RunId) -> Sequence[Message]:
        """Return the conversation of the session before this run, as the model saw it."""
        ...

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """Return durable events with a sequence above `after`, in order. Raise UnknownRun if there is no such
        run."""
        ...


class Wakes(Protocol):
    """What a dispatcher needs from the store, so that no wake is lost and no lease expires."""

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        """Return runs that need work now: due or orphaned, without a live owner, and first in their session."""
        ...

    async def renew(self, worker: str) -> Sequence[RunId]:
        """Extend the leases of all runs that this worker owns, and return these runs.

        If a run is missing that was returned before, another worker has taken it over: work on it must stop."""
        ...


class DepsProvider(Protocol):
    """What a process provides to runs that were submitted with deps of their own. Deps exist only in memory."""

    @property
    def makes_deps(self) -> bool:
        """Whether it makes the deps of runs that other processes have submitted."""
        ...

    def holds(self, run_id: RunId) -> bool:
        """Return whether it has the deps of a run."""
        ...


class Feed(Protocol):
    """The events of all runs as one sequence."""

    async def position(self) -> int:
        """Return the position of the latest event, or 0 if there is none."""
        ...

    async def after(
        self,
        position: int,
        agents: Sequence[str] | None = None,
        limit: int = 500,
        owner: UserId | None = None,
    ) -> Sequence[PositionedEvent]:
        """Return durable events after a position, optionally only of runs of these agents or of this owner."""
        ...


class Runs(Feed, Protocol):
    """Looks up runs."""

    async def record(self, run_id: RunId) -> RunRecord: ...

    async def find(self, filter: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        """Return matching runs, in the order of the filter."""
        ...

    async def sum(self, filter: RunFilter = ALL_RUNS) -> RunSums:
        """Return the sums of all matching runs."""
        ...

    async def list_unfinished(self, session_id: SessionId | None = None) -> Sequence[RunRecord]:
        """Return the unfinished runs of one session or of all sessions, oldest first."""
        ...

    async def find_submitted(self, key: str) -> Submitted | None:
        """Return what became of a submission with this key, or None if there was none."""
        ...

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        """Return the id of the agent with this name. If it has none yet, store the proposed id and return it."""
        ...
