"""What every surface asks, whoever answers: this process (`LocalService`) or another (`RemoteService`)."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.events import ClarifyRequested, SteerMode
from treadle.domain.ids import ApprovalId, RunId, SessionId
from treadle.domain.messages import Message
from treadle.engine.event_hub import EndedRun
from treadle.operations.approvals import Answer
from treadle.operations.forks import Fork
from treadle.operations.submissions import Submission, Ticket
from treadle.ports.approvals import ApprovalRecord
from treadle.ports.journal import ALL_RUNS, Placed, RunFilter, RunRecord
from treadle.ports.sessions import SegmentRecord, SessionRecord
from treadle.replay.replay import Replayed


class Acting(Protocol):
    """What can be done."""

    async def submit(self, submission: Submission) -> Ticket:
        """Take a message: a new run, or, where the session has a run that waits, a message to that run."""
        ...

    async def fork(self, fork: Fork) -> Ticket:
        """A new run from a step of an old one, in a new session; nothing of the old one is done again."""
        ...

    async def steer(
        self, run_id: RunId, message: Message, mode: SteerMode = "queue", key: str | None = None
    ) -> int:
        """A message for a run under way: at its next step, or at once."""
        ...

    async def interrupt(self, run_id: RunId, reason: str = ...) -> int:
        """Stop what is under way and wait until asked to go on."""
        ...

    async def resume(self, run_id: RunId) -> int:
        """Go on with a run that waits."""
        ...

    async def cancel(self, run_id: RunId, reason: str = ...) -> int: ...

    async def decide(self, approval_id: ApprovalId, answer: Answer) -> int:
        """Answer an approval. There is one answer: a second one raises InvalidState."""
        ...

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        """Answer a question that an agent asked. There is one answer: a second one raises InvalidState."""
        ...


class Watching(Protocol):
    """What happens."""

    async def wait(self, run_id: RunId) -> EndedRun:
        """The end of a run, whenever it comes, and whose it is."""
        ...

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Everything durable after a sequence, what is being said now, and then all that follows, as it happens.

        It ends after `run_end`, or after a `stream_reset` when the reader was too slow."""
        ...

    def stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a run that are in the journal now."""
        ...

    def feed(self, after: int | None = None, agents: Sequence[str] | None = None) -> AsyncGenerator[Placed, None]:
        """What is committed, of all runs or of those of some agents, in the order of commits: after a position, and
        then as it comes; without a position, from now on."""
        ...


class Asking(Protocol):
    """What there is."""

    async def run(self, run_id: RunId) -> RunRecord: ...

    async def runs(self, wanted: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        """The newest first."""
        ...

    async def unfinished(self) -> Sequence[RunRecord]:
        """Runs that have not ended, the oldest first."""
        ...

    async def agent_of(self, run_id: RunId) -> AgentSpec:
        """The agent of a run, as it was when the run was asked for."""
        ...

    async def replay(self, run_id: RunId) -> Replayed:
        """The journal of a run through the code of today; where they part first, if they do. Nothing is changed."""
        ...

    async def approvals(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """What waits for a decision, of one run or of all."""
        ...

    async def approval(self, approval_id: ApprovalId) -> ApprovalRecord: ...

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        """What a run has asked and nobody has answered."""
        ...

    async def sessions(self, limit: int = 50, before: SessionId | None = None) -> Sequence[SessionRecord]:
        """The latest first; those after that one in this order."""
        ...

    async def session(self, session_id: SessionId) -> SessionRecord: ...

    async def segments(self, session_id: SessionId) -> Sequence[SegmentRecord]:
        """What the model was shown of a session, one after the other; without what it began with."""
        ...

    async def runs_of(self, session_id: SessionId) -> Sequence[RunRecord]:
        """The runs of a session, in the order in which they were asked for."""
        ...


class Service(Acting, Watching, Asking, Protocol):
    """The one entry for every surface."""
