"""The journal: what happened, in order, for good. All safety lives here.

There are two kinds of append. *Advance* is for the worker that owns the run: it carries the run's epoch, which
a worker gets by claiming the run and loses when another claims it. *Deliver* is for anyone. An advance that
meets deliveries its worker has not seen still records its facts (they happened) but not its intents (they were
decided without knowing)."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import StoreError
from treadle.domain.events import SegmentOpened, WaitReason
from treadle.domain.ids import AgentId, Instant, RunId, SessionId
from treadle.domain.messages import Message
from treadle.domain.runs import OutcomeKind, Status
from treadle.domain.users import LOCAL_USER, UserId
from treadle.ports.accounts import AccountShortage, Reserve

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
RECENT_DEATH_SECONDS = 600.0
"""How long the death of a worker says something about the next one."""


class SessionFacts(Struct, frozen=True):
    """What a session has settled for all of its runs."""

    segment: SegmentOpened | None = None
    """The latest; None: it has only the one that it began with."""
    segment_at: Instant = 0.0
    """When it was opened."""
    notes: tuple[str, str] | None = None
    """A workspace, and what the system prompt keeps of it; None: nothing is kept yet."""
    last: RunId | None = None
    """The run before this one that has added to its conversation; None: nobody has said anything."""


class Death(Struct, frozen=True):
    """A worker that died, or lost its lease, while it owned a run."""

    alone: bool = True
    """It owned no other run."""
    lately: int = 0
    """Workers that died within `LATELY_SECONDS`, this one included."""


class Claim(Struct, frozen=True):
    """A worker's right to advance a run, with all that the run has been through."""

    origin: Origin
    epoch: int
    events: tuple[Event, ...]
    death: Death | None = None
    """How the previous worker lost the run; None: it released the run, or there was none."""
    session: SessionFacts = SessionFacts()


class Release(Struct, frozen=True, gc=False):
    """Let go of a run, together with the intents of the same advance; refused with them."""

    waiting_for: WaitReason | None = None
    wake_at: Instant | None = None
    """When to look at the run again by itself; None: only when something is delivered."""
    said: tuple[Message, ...] | None = None
    """For a run that ends: what it adds to the conversation of its session."""
    whole: bool = False
    """It is not added: it is the whole conversation, from now on."""


class NewRun(Struct, frozen=True, gc=False):
    """A run that is begun, runnable at once."""

    origin: Origin
    events: tuple[Draft, ...]
    """Its first."""


class RunMessage(Struct, frozen=True, gc=False):
    """A delivery to another run, as by `Journal.deliver`. Nothing is told to a run that has ended, or is gone."""

    run_id: RunId
    event: Draft
    key: str


class Advance(Struct, frozen=True, gc=False):
    """What the owner of a run adds to it, in one commit."""

    run_id: RunId
    epoch: int
    seen: int
    """The last sequence that the owner has folded."""
    facts: tuple[Draft, ...] = ()
    """What has happened: always recorded."""
    intents: tuple[Draft, ...] = ()
    """What is about to happen: recorded only if nothing was delivered after `seen`."""
    release: Release | None = None
    reserve: Reserve | None = None
    """What the intents may use at most: they are refused where an account does not have it."""
    begin: tuple[NewRun, ...] = ()
    """Runs under it, begun together with the intents."""
    tell: tuple[RunMessage, ...] = ()
    """What others are told, together with the intents."""


ANY = 2**62
"""For `seen`: let go whatever was delivered, for a worker that is about to stop."""


class Advanced(Struct, frozen=True, gc=False):
    accepted: bool
    """Whether the intents, and the release, took place."""
    delivered: tuple[Event, ...]
    """What others appended after `seen`; they stand before the facts."""
    sequence: int
    """The last sequence of the run now."""
    refused: AccountShortage | None = None
    """The account that did not have what was to be reserved: that is why the intents did not take place."""
    near: tuple[AccountShortage, ...] = ()
    """Accounts that had it, and come to their end. Each is named once in its window."""


class Publisher(Protocol):
    """Who is told of what was committed. Called in the order of commits, on the event loop, and never blocks."""

    def committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        """These events are durable; the first has the sequence `first`, the others follow without a gap."""
        ...

    def delivered(self, run_id: RunId) -> None:
        """Somebody other than the owner has appended to this run."""
        ...

    def wake(self, run_id: RunId, at: Instant) -> None:
        """This run should be looked at, then."""
        ...

    def lost(self, error: StoreError) -> None:
        """Nothing can be made durable any more; whoever waits must be told."""
        ...


class RunRecord(Struct, frozen=True):
    """A run as lists show it, kept in the transaction of the events it sums up."""

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
    """The user it is for, as its `run_queued` says."""


class RunFilter(Struct, frozen=True):
    """Which runs; None: whatever they have there."""

    agents: tuple[str, ...] | None = None
    session_id: SessionId | None = None
    parent_run_id: RunId | None = None
    status: Status | None = None
    outcome: OutcomeKind | None = None
    before: RunId | None = None
    """Only those that were asked for before this one."""
    unfinished: bool = False
    """Only those that have not ended."""
    owner: UserId | None = None


ALL_RUNS = RunFilter()


class PositionedEvent(Struct, frozen=True, gc=False):
    """An event with its place in the order of commits over all runs."""

    position: int
    event: Event


class Journal(Protocol):
    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        """Create a run with its first events, runnable at once, and return its id.

        With a key that was used before, nothing is created and the id of that run is returned. All runs of a
        session have one owner: raises SessionTaken, and creates nothing, where its first run has another."""
        ...

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        """Open a new epoch. Raises NotClaimable while another worker holds the lease, when the run has ended,
        while an earlier run of its session has not (unless it is cancelled before it began); UnknownRun when there
        is none."""
        ...

    async def advance(self, advance: Advance) -> Advanced:
        """Append as the owner. Raises Fenced, and writes nothing, when the epoch has moved; and so SessionDeleted,
        where a run is to begin in a session that was deleted, and SessionTaken, where it is another owner's."""
        ...

    async def deliver(self, run_id: RunId, event: Draft, key: str) -> int | None:
        """Append as anyone and make the run runnable; return the event's sequence.

        The same key again appends nothing and returns the first one's sequence. None when the run has ended:
        nothing follows `run_end`. Raises InvalidState for the answer to an approval that is not open any more."""
        ...

    async def history(self, run_id: RunId) -> Sequence[Message]:
        """What the session of this run had said before it, as the model was shown it then."""
        ...

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """Durable events with a sequence above `after`, in order. UnknownRun when there is no such run."""
        ...


class Wakes(Protocol):
    """What a dispatcher needs of the store, so that no wake is ever lost and no lease runs out."""

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        """Runs that somebody should look at now: due or orphaned, owned by nobody alive, first in their session."""
        ...

    async def renew(self, worker: str) -> Sequence[RunId]:
        """Extend the lease of every run that this worker owns, and name them. A run that is not named any more
        was taken over: whoever works on it must stop."""
        ...


class Feed(Protocol):
    """What all runs go through, as one sequence."""

    async def position(self) -> int:
        """Of the latest event; 0 where there is none."""
        ...

    async def after(
        self,
        position: int,
        agents: Sequence[str] | None = None,
        limit: int = 500,
        owner: UserId | None = None,
    ) -> Sequence[PositionedEvent]:
        """Durable events after a position, of all runs or of those of the agents with these names, and of all
        owners or of this one."""
        ...


class Runs(Feed, Protocol):
    """Looking runs up."""

    async def record(self, run_id: RunId) -> RunRecord: ...

    async def find(self, wanted: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        """The newest first."""
        ...

    async def unfinished(self, session_id: SessionId | None = None) -> Sequence[RunRecord]:
        """Runs that have not ended, of one session or of all, the oldest first."""
        ...

    async def submitted(self, key: str) -> RunId | None:
        """The run that a submission with this key made, or went to."""
        ...

    async def agent(self, name: str, proposed: AgentId) -> AgentId:
        """The id of the agent of that name: the one it has, else the proposed one, kept from now on."""
        ...
