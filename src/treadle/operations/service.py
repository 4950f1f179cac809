"""The one entry for every surface: submit, steer, cancel, subscribe, query. Nothing here knows who is asking."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import InvalidState, UnknownSession, UsageError
from treadle.domain.events import (
    CancelRequested,
    ClarifyRequested,
    Delivery,
    EventData,
    MessageSteered,
    ResumeRequested,
    RunEnd,
    RunInterrupted,
    RunQueued,
    SteerMode,
    StreamReset,
    UserMessage,
)
from treadle.domain.ids import AgentId, ApprovalId, RunId, SessionId
from treadle.domain.messages import Message
from treadle.domain.users import UserId, journaled_owner
from treadle.engine.event_hub import EndedRun, EventHub
from treadle.engine.subscription import MAX_BACKLOG_EVENTS
from treadle.operations.approval_service import Answer, People
from treadle.operations.event_factory import Drafts
from treadle.operations.event_feed import Missed, durable_feed, live_feed
from treadle.operations.forks import Fork, Forking
from treadle.operations.journal_pages import stored_events
from treadle.operations.prompts import Seen, seen
from treadle.operations.replays import replayed, without_secrets_of
from treadle.operations.run_stream import Reader, followed
from treadle.operations.submissions import Admission, Submission, Ticket, check_message, without_secrets
from treadle.operations.usage import ALL_BY_AGENT, UsageAccounts, UsageLine, UsageQuery, usage
from treadle.ports.accounts import AgentState, Balance
from treadle.ports.approvals import ApprovalRecord, Approvals
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import ALL_RUNS, Journal, PositionedEvent, RunFilter, RunRecord, Runs
from treadle.ports.model import Models
from treadle.ports.sessions import SessionRecord, Sessions
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Vault
from treadle.replay.replay import Replayed


class LocalService:
    """Implements `service.Service` in the process that owns the journal."""

    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        approvals: Approvals,
        sessions: Sessions,
        hub: EventHub,
        models: Models,
        tools: Toolbox,
        vault: Vault,
        clock: Clock,
        ids: Ids,
        books: UsageAccounts,
        credits_per_dollar: float = 1.0,
    ) -> None:
        self._journal = journal
        self._vault = vault
        self._runs = runs
        self._sessions = sessions
        self._hub = hub
        self._books = books
        self._credits_per_dollar = credits_per_dollar
        self._admission = Admission(models, tools, books)
        self._drafts = Drafts(vault, clock, ids)
        self._approvals = approvals
        self._replaying = asyncio.Lock()
        self._tools = tools
        self._people = People(journal, approvals, tools, vault, self._drafts)
        self._forking = Forking(
            journal, runs, self._admission, self._drafts, vault, ids, self._agent_id, credits_per_dollar
        )
        self._clock = clock
        self._ids = ids
        self._agents: dict[str, AgentId] = {}

    # ── Runs come and go ──

    async def submit(self, submission: Submission, because: EventData | None = None) -> Ticket:
        """Take a message: a new run, or, where the session has a run that waits, a message to that run. One that
        nobody has typed says what it is sent because of: it is always a run of its own, which has that on record.

        Everything that can be known to be wrong is raised here, before anything is written."""
        if submission.key is not None and (known := await self._runs.submitted(submission.key)):
            return _ticket(await self._runs.record(known), submission)
        await self._admission.check(submission)
        owner = await self._owner(submission)
        message, redacted = without_secrets(submission.message, self._vault.redactor)
        command = submission.command
        waiting = None if because is not None else await self._waiting(submission.session_id)
        if submission.session_id is not None and waiting is not None:
            if command is not None:
                raise InvalidState(
                    f"{waiting} waits in this session. Answer, resume or cancel it first: then the session can be "
                    "asked to do that."
                )
            if not await self._is_command(waiting):
                await self._refuse_other_agent(waiting, submission.agent)
                event = MessageSteered(message, "queue")
                if await self._deliver(waiting, event, submission.key) is not None:
                    return Ticket(waiting, submission.session_id)
        origin = Origin(
            RunId(self._ids("run")),
            submission.session_id or SessionId(self._ids("ses")),
            await self._agent_id(submission.agent.name),
        )
        queued = RunQueued(
            submission.agent,
            submission.resumed_from,
            submission.asker,
            command,
            submission.token,
            submission.token_quotas,
            self._credits_per_dollar,
            submission.before,
            submission.instructions,
            owner=journaled_owner(owner),
        )
        reason = () if because is None else (because,)
        first = (queued, *reason, *redacted, *(() if command is not None else (UserMessage(message),)))
        drafts = tuple(self._drafts.make(data) for data in first)
        run_id = await self._journal.submit(origin, drafts, submission.key)
        if run_id == origin.run_id:
            return Ticket(run_id, origin.session_id)
        return Ticket(run_id, (await self._runs.record(run_id)).origin.session_id)

    async def _owner(self, submission: Submission) -> UserId:
        """Who owns the run: whoever owns its session, else whoever sends the message."""
        if submission.session_id is None:
            return submission.user
        owner = await self._sessions.owner(submission.session_id) or submission.user
        if submission.only_own and owner != submission.user:
            raise _unknown_session(submission.session_id)
        return owner

    async def fork(self, fork: Fork) -> Ticket:
        """A new run from a step of an old one, in a new session; nothing of the old one is done again."""
        return await self._forking.fork(fork)

    async def _refuse_other_agent(self, run_id: RunId, agent: AgentSpec) -> None:
        asked = await self.agent_of(run_id)
        if asked.name != agent.name:
            raise InvalidState(
                f"{run_id} of agent `{asked.name}` waits in this session, and would get the message. "
                "Answer, resume or cancel that run first, or begin another session."
            )

    async def _waiting(self, session_id: SessionId | None) -> RunId | None:
        if session_id is None:
            return None
        for record in await self._runs.unfinished(session_id):
            return record.origin.run_id if record.status == "waiting" else None
        return None

    async def _agent_id(self, name: str) -> AgentId:
        if name not in self._agents:
            self._agents[name] = await self._runs.agent(name, AgentId(self._ids("agt")))
        return self._agents[name]

    async def steer(
        self, run_id: RunId, message: Message, mode: SteerMode = "queue", key: str | None = None
    ) -> int:
        """A message for a run under way: at its next step, or at once."""
        check_message(message)
        if await self._is_command(run_id):
            raise InvalidState(f"{run_id} answers no message. Send yours to its session: it comes next.")
        kept, _ = without_secrets(message, self._vault.redactor)
        return await self._must_deliver(run_id, MessageSteered(kept, mode), key)

    async def interrupt(self, run_id: RunId, reason: str = "Interrupted by the user.") -> int:
        """Stop what is under way and wait until asked to go on."""
        return await self._must_deliver(run_id, RunInterrupted(reason), None)

    async def resume(self, run_id: RunId) -> int:
        """Go on with a run that waits."""
        return await self._must_deliver(run_id, ResumeRequested(), None)

    async def cancel(self, run_id: RunId, reason: str = "asked for by the user") -> int:
        return await self._must_deliver(run_id, CancelRequested(reason), None)

    async def note(self, run_id: RunId, event: EventData, key: str) -> bool:
        """Put something on the record of a run, once for a key. False: the run has ended."""
        return await self._deliver(run_id, event, key) is not None

    # ── People are asked, and answer ──

    async def decide(self, approval_id: ApprovalId, answer: Answer) -> int:
        """Answer an approval. There is one answer: a second one raises InvalidState."""
        return await self._people.decide(approval_id, answer)

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        """Answer a question that an agent asked. There is one answer: a second one raises InvalidState."""
        return await self._people.answer(run_id, call_id, text, by)

    async def approvals(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """What waits for a decision, of one run or of all."""
        return await self._people.approvals(run_id)

    async def approval(self, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._people.approval(approval_id)

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        """What a run has asked and nobody has answered."""
        return await self._people.questions(run_id)

    async def _must_deliver(self, run_id: RunId, event: Delivery, key: str | None) -> int:
        sequence = await self._deliver(run_id, event, key)
        if sequence is None:
            record = await self._runs.record(run_id)
            raise InvalidState(
                f"{run_id} has ended ({record.outcome}). "
                f"Send a message to its session {record.origin.session_id} to go on from there."
            )
        return sequence

    async def _deliver(self, run_id: RunId, event: EventData, key: str | None) -> int | None:
        made = self._drafts.make(event)
        return await self._journal.deliver(run_id, made, key or made.event_id)

    # ── What happens ──

    async def wait(self, run_id: RunId) -> EndedRun:
        """The end of a run, whenever it comes, and whose it is."""
        end = self._hub.await_end(run_id)
        try:
            if not self._hub.is_unfinished(run_id):
                record = await self._runs.record(run_id)
                if record.outcome is not None:
                    last = (await self._journal.read(run_id, after=record.sequence - 1))[-1]
                    assert isinstance(last.data, RunEnd), f"the last event of {run_id} is {last.type}, not its end"
                    return record.origin, last.data
            return await end
        finally:
            self._hub.stop_awaiting_end(run_id, end)

    async def events(
        self, run_id: RunId, after: int = 0, backlog: int = MAX_BACKLOG_EVENTS
    ) -> AsyncGenerator[Event, None]:
        """Everything durable after a sequence, what is being said now, and then all that follows, as it happens.

        It ends after `run_end`, or after a `stream_reset` when the reader was too slow."""
        async with aclosing(self.batches(Reader(run_id, after, backlog))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    def batches(self, reader: Reader) -> AsyncGenerator[Sequence[Event], None]:
        """The same, with what is there at once in one piece: for whoever sends it on."""
        return followed(reader, self._hub, self._journal, self._runs)

    def reset(self, origin: Origin, reason: str) -> Event:
        """What a reader is told who must begin anew."""
        return self._hub.make_event(origin, 0, StreamReset(0, reason))

    async def page(self, run_id: RunId, after: int = 0, limit: int = 100) -> Sequence[Event]:
        """So many of the events of a run that are in the journal now."""
        return await self._journal.read(run_id, after, limit)

    async def stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a run that are in the journal now."""
        async for event in stored_events(self._journal, run_id, after):
            yield event

    # ── What there is ──

    async def run(self, run_id: RunId) -> RunRecord:
        return await self._runs.record(run_id)

    async def runs(self, wanted: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        """The newest first."""
        return await self._runs.find(wanted, limit)

    async def feed(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[PositionedEvent, None]:
        """What is committed, of all runs or of those of some agents or one owner, in the order of commits: after a
        position, and then as it comes; without a position, from now on."""
        async with aclosing(self.feed_pages(after, agents, owner)) as pages:
            async for page in pages:
                for placed in page:
                    yield placed

    def feed_pages(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[Sequence[PositionedEvent], None]:
        """The same, with what is there at once in one piece."""
        return durable_feed(self._hub, self._runs, after, agents, owner)

    def live_feed(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[Sequence[PositionedEvent | Event | Missed], None]:
        """The same, with the live events of these runs, and how many of those a slow reader has missed."""
        return live_feed(self._hub, self._runs, after, agents, owner)

    async def position(self) -> int:
        """Of the latest event, in the order of commits."""
        return await self._runs.position()

    async def usage(self, query: UsageQuery = ALL_BY_AGENT) -> Sequence[UsageLine]:
        """What was used, a line for each agent, token, model or day."""
        return await usage(self._books, query)

    async def balance(self, account: str) -> Balance:
        """What an account has used: `agent/NAME`, `token/ID` or `tree/RUN`. Only what has an end is counted so."""
        return await self._books.balance(account)

    async def agent_state(self, name: str) -> AgentState:
        return await self._books.state(name)

    async def set_agent_state(self, name: str, state: AgentState) -> None:
        """Let an agent take messages, or not. Runs under way go on."""
        await self._agent_id(name)  # so that it is known
        await self._books.set_state(name, state)

    async def agent_of(self, run_id: RunId) -> AgentSpec:
        """The agent of a run, as it was when the run was asked for."""
        [queued] = await self._journal.read(run_id, 0, 1)
        assert isinstance(queued.data, RunQueued), f"the first event of {run_id} is {queued.type}"
        return queued.data.agent

    async def _is_command(self, run_id: RunId) -> bool:
        """Whether a run does something with its session, and answers no message."""
        first = [event.data for event in await self._journal.read(run_id, 0, 1)]
        return any(isinstance(data, RunQueued) and data.command is not None for data in first)

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._runs.unfinished()

    async def prompt(self, run_id: RunId, step: int | None = None) -> Seen:
        """What the model was sent at a step, the latest unless it is said which."""
        return await seen(run_id, step, self._journal)

    async def replay(self, run_id: RunId) -> Replayed:
        """The journal of a run through the code of today; where they part first, if they do. Nothing is changed."""
        async with self._replaying:  # one at a time: it takes a processor for itself
            found = await replayed(run_id, self._journal, self._sessions, self._approvals, self._tools)
            return without_secrets_of(found, self._vault.redactor)

    async def session(self, session_id: SessionId) -> SessionRecord:
        found = await self._sessions.find(session_id)
        if found is None:
            raise _unknown_session(session_id)
        return found

    async def runs_of(self, session_id: SessionId) -> Sequence[RunRecord]:
        """The runs of a session, in the order in which they were asked for."""
        return await self._sessions.runs(session_id)


def _ticket(record: RunRecord, submission: Submission) -> Ticket:
    """For a message that was sent before. Raises UsageError where the key was another user's."""
    if submission.only_own and record.owner != submission.user:
        raise UsageError(f"The key `{submission.key}` is in use already. Nothing was begun. Use a key of its own.")
    return Ticket(record.origin.run_id, record.origin.session_id)


def _unknown_session(session_id: SessionId) -> UnknownSession:
    return UnknownSession(f"There is no session {session_id}. `treadle sessions list` shows those there are.")
