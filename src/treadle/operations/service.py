"""The service behind every surface: submit, steer, cancel, follow and query runs. Callers check access rights."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import Event, Origin
from treadle.domain.errors import InvalidState, SessionContinued, UsageError
from treadle.domain.events import (
    CancelRequested,
    ClarifyRequested,
    Delivery,
    EventData,
    MessageSteered,
    ModeChanged,
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
from treadle.domain.runs import RunPart
from treadle.domain.users import UserId
from treadle.engine.event_hub import EndedRun, EventHub, PausedRun, durable_sequence
from treadle.engine.subscription import MAX_BACKLOG_EVENTS, UNCOUNTED, MemoryAccount
from treadle.operations.event_factory import DraftFactory
from treadle.operations.journal_pages import read_queued, read_stored_events
from treadle.operations.not_found import unknown_session
from treadle.operations.refusal_watch import RefusalWatch
from treadle.operations.run_stream import StreamReader, follow_run
from treadle.operations.schemas import Ticket
from treadle.operations.usage import UsageAccounts
from treadle.operations.workspaces import WorkspaceIdentifier, identify_by_path
from treadle.ports.accounts import AgentState, Balance
from treadle.ports.approvals import ApprovalRecord, Approvals
from treadle.ports.clock import Clock, Ids
from treadle.ports.journal import ALL_RUNS, Journal, PositionedEvent, RunFilter, RunRecord, Runs, RunSums
from treadle.ports.model import Models
from treadle.ports.results import Results
from treadle.ports.sessions import SessionCatalog, SessionRecord
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Vault

_Found = TypeVar("_Found")
FindVersion = Callable[[str], Awaitable[int | None]]
SUPERSEDED_BY_MESSAGE = "a new message came, from a client with other tools"

if TYPE_CHECKING:
    from treadle.domain.client_tools import ClientTool
    from treadle.operations.approval_service import Answer, ApprovalService
    from treadle.operations.client_call_service import ClientCallService
    from treadle.operations.event_feed import Missed
    from treadle.operations.forks import Fork, ForkService
    from treadle.operations.mode_service import ModeService, SandboxCheck
    from treadle.operations.prompts import SentPrompt
    from treadle.operations.submissions import Admission, Submission
    from treadle.operations.transcript_stream import SharedTranscripts
    from treadle.replay.replay import Replayed


async def find_no_sandbox() -> str:
    """Return why there is no sandbox, for a process that runs no commands."""
    return "this process runs no commands"


class LocalService:
    """Runs and sessions of one database, in the process that owns the journal. What only some operations need is
    imported when they are used: commands that list runs start faster."""

    def __init__(
        self,
        journal: Journal,
        runs: Runs,
        approvals: Approvals,
        sessions: SessionCatalog,
        hub: EventHub,
        models: Models,
        tools: Toolbox,
        vault: Vault,
        clock: Clock,
        ids: Ids,
        books: UsageAccounts,
        credits_per_dollar: float = 1.0,
        results: Results | None = None,
        identify: WorkspaceIdentifier = identify_by_path,
        find_version: FindVersion | None = None,
        explain_missing_sandbox: "SandboxCheck" = find_no_sandbox,
    ) -> None:
        self._journal, self._results, self.identify = journal, results, identify
        self.refusals = RefusalWatch(hub)
        self._find_version = find_version
        self._vault = vault
        self._runs = runs
        self._sessions = sessions
        self._hub = hub
        self.accounts = books
        self._credits_per_dollar = credits_per_dollar
        self._models = models
        self._drafts = DraftFactory(vault, clock, ids)
        self._approvals = approvals
        self._replaying = asyncio.Lock()
        self._tools = tools
        self._clock = clock
        self._ids = ids
        self._agents: dict[str, AgentId] = {}
        self._explain_missing_sandbox = explain_missing_sandbox

    @cached_property
    def _admission(self) -> "Admission":
        from treadle.operations.submissions import Admission

        return Admission(self._models, self._tools, self.accounts, self._vault)

    @cached_property
    def approval_service(self) -> "ApprovalService":
        from treadle.operations.approval_service import ApprovalService

        stores = (self._journal, self._runs, self._approvals)
        return ApprovalService(*stores, self._tools, self._vault, self._drafts, self.modes)

    @cached_property
    def modes(self) -> "ModeService":
        from treadle.operations.mode_service import ModeService

        stores = (self._journal, self._runs, self._sessions)
        return ModeService(*stores, self._drafts, self._explain_missing_sandbox)

    @cached_property
    def client_calls(self) -> "ClientCallService":
        from treadle.operations.client_call_service import ClientCallService

        return ClientCallService(self._journal, self._vault, self._drafts, self._hub.client_waits)

    @cached_property
    def _fork_service(self) -> "ForkService":
        from treadle.operations.forks import ForkService

        stores, makers = (self._journal, self._runs, self._admission), (self._drafts, self._vault, self._ids)
        return ForkService(
            *stores, *makers, self._agent_id, self._credits_per_dollar, self.identify, self.find_version
        )

    @cached_property
    def _transcripts(self) -> "SharedTranscripts":
        from treadle.operations.transcript_stream import SharedTranscripts

        return SharedTranscripts(self)

    # ── Starting and steering runs ──

    async def submit(
        self, submission: "Submission", because: EventData | None = None, run_id: RunId | None = None
    ) -> Ticket:
        """Accept a message: start a run, or deliver the message to the run that waits in the session.

        An automatic message passes the event that caused it (`because`), which its own run records. Everything
        that can be checked is checked here, before anything is written."""
        from treadle.operations.submissions import resolve_submission

        if submission.key is not None and (known := await self._runs.find_submitted(submission.key)):
            return _ticket(await self._runs.record(known.run_id), submission, known.sequence)
        submission = await resolve_submission(submission, self._sessions, self._runs, self._journal, self.identify)
        await self._admission.check(submission)
        await self._apply_mode(submission)
        if submission.follows is None:
            return await self._submit(submission, because, run_id)
        from treadle.operations.branches import branch_session

        if await self.find_part_end(submission.follows) is None:
            with suppress(SessionContinued):
                return await self._submit(submission, because, run_id)
        branched = await branch_session(submission, submission.follows, self._journal)
        return await self._submit(branched, because, run_id)

    async def _submit(self, submission: "Submission", because: EventData | None, run_id: RunId | None) -> Ticket:
        """Start a run, or deliver the message to the run that waits in the session. Raise SessionContinued if the
        session has gone on since the part of a run that the message follows."""
        from treadle.operations.submissions import make_queued, redact_message

        message, redacted = redact_message(submission.message, self._vault.redactor)
        command = submission.command
        own = because is not None or submission.after_current
        waiting = None if own else await self._find_waiting_run(submission.session_id)
        if submission.session_id is not None and waiting is not None:
            if command is not None:
                raise InvalidState(
                    f"{waiting} waits in this session. Answer, resume or cancel it first, then send the "
                    "command again."
                )
            if not await self._is_command(waiting):
                queued = await self._check_receiver(waiting, submission)
                if submission.follows is not None and submission.follows.run_id != waiting:
                    raise SessionContinued(f"{submission.session_id} has gone on: {waiting} waits in it.")
                if queued.client_tools != submission.client_tools and await self._waits_for_client(waiting):
                    await self._deliver(waiting, CancelRequested(SUPERSEDED_BY_MESSAGE), None)
                else:
                    event = MessageSteered(message, "steer")
                    if (sequence := await self._deliver(waiting, event, submission.key)) is not None:
                        return Ticket(waiting, submission.session_id, sequence - 1)
        origin = Origin(
            run_id or RunId(self._ids("run")),
            submission.session_id or SessionId(self._ids("ses")),
            await self._agent_id(submission.agent.name),
        )
        version = await self.find_version(submission.agent.name, submission.version)
        queued = make_queued(submission, self._credits_per_dollar, self.identify(submission.agent), version)
        reason = () if because is None else (because,)
        first = (queued, *reason, *redacted, *(() if command is not None else (UserMessage(message),)))
        drafts = tuple(self._drafts.make(data) for data in first)
        found = await self._journal.submit(origin, drafts, submission.key)
        if found == origin.run_id:
            await self._catch_up_mode(origin, submission)
            return Ticket(found, origin.session_id)
        return Ticket(found, (await self._runs.record(found)).origin.session_id)

    async def find_version(self, agent: str, chosen: int | None) -> int | None:
        """Return the version that the record of a run names: the chosen one, or the current one of the agent. None:
        the agent has no file."""
        if chosen is not None:
            return chosen or None
        return None if self._find_version is None else await self._find_version(agent)

    async def _apply_mode(self, submission: "Submission") -> None:
        """Give the session of a message the mode that comes with it. A new session begins with it."""
        session_id, mode = submission.session_id, submission.mode
        if mode is None:
            return
        known = None if session_id is None else await self._sessions.basics(session_id)
        if session_id is not None and known is not None:
            if known.mode != mode:
                await self.modes.change(session_id, mode, submission.user)
        elif mode == "auto":
            agent = submission.agent
            await self.modes.check_auto(agent.name, is_confined=agent.confinement.mode != "off")

    async def _catch_up_mode(self, origin: Origin, submission: "Submission") -> None:
        """Give a new run the mode that its session got since the submission read it."""
        known = None if submission.session_id is None else await self._sessions.basics(origin.session_id)
        if known is not None and known.mode != submission.mode:
            await self._deliver(origin.run_id, ModeChanged(known.mode), None)

    async def was_submitted(self, key: str) -> bool:
        """Return whether a message with this idempotency key was submitted."""
        return await self._runs.find_submitted(key) is not None

    def check_model(self, name: str) -> None:
        """Raise UnknownModel or MissingKey for a model that cannot be called."""
        self._models.resolve(name, None)

    async def find_part_end(self, part: RunPart) -> int | None:
        """Return the sequence of the last event of a part of a run, or None if it is the last part."""
        from treadle.operations.branches import find_part_end

        return await find_part_end(part, self._journal)

    def list_unsent_settings(self, agent: AgentSpec) -> Sequence[str]:
        """Return the model settings of an agent that its model does not take. Stop texts work with every model."""
        from treadle.domain.call_settings import list_unsent

        found = self._models.resolve(agent.model, agent.provider)
        return [name for name in list_unsent(agent.model_settings, found.api_mode, found.profile) if name != "stop"]

    async def fork(self, fork: "Fork") -> Ticket:
        """Queue a run that continues from a step of an old run, in a new session. Nothing of the old run is
        repeated."""
        return await self._fork_service.fork(fork)

    async def _waits_for_client(self, run_id: RunId) -> bool:
        """Return whether a run waits for results of its client's tools, which a client with other tools, or without
        any, will not deliver."""
        return bool(await self.client_calls.list_open(await self._runs.record(run_id)))

    async def _check_receiver(self, run_id: RunId, submission: "Submission") -> RunQueued:
        """Return how the run that waits was queued. Raise InvalidState if it is of another agent, workspace or user
        than the message."""
        from treadle.operations.submissions import explain_mismatch

        queued = await read_queued(run_id, self._journal)
        if (reason := explain_mismatch(queued, submission, self.identify(submission.agent))) is not None:
            raise InvalidState(
                f"{run_id} waits in this session and would receive the message, but {reason}. Answer, resume or "
                "cancel that run first, or start another session."
            )
        return queued

    async def _find_waiting_run(self, session_id: SessionId | None) -> RunId | None:
        if session_id is None:
            return None
        for record in await self._runs.list_unfinished(session_id):
            run_id = record.origin.run_id
            if record.status == "waiting":
                return run_id
            may_wait = record.status == "running" and not self._hub.is_in_progress(run_id)
            return run_id if may_wait and await self.client_calls.list_open(record) else None
        return None

    async def _agent_id(self, name: str) -> AgentId:
        if name not in self._agents:
            self._agents[name] = await self._runs.agent(name, AgentId(self._ids("agt")))
        return self._agents[name]

    async def steer(
        self, run_id: RunId, message: Message, mode: SteerMode = "steer", key: str | None = None
    ) -> int:
        """Send a message to a run in progress, for its next step or at once."""
        from treadle.operations.submissions import check_message, redact_message

        limits = (await self.agent_of(run_id)).limits if len(message.parts) > 1 else Limits()
        check_message(message, limits.max_attachment_bytes)
        if await self._is_command(run_id):
            raise InvalidState(
                f"{run_id} is a session command and accepts no message. Send the message to its session."
            )
        redacted, _ = redact_message(message, self._vault.redactor)
        return await self._must_deliver(run_id, MessageSteered(redacted, mode), key)

    async def interrupt(self, run_id: RunId, reason: str = "Interrupted by the user.") -> int:
        """Stop the work in progress. The run waits until it is resumed."""
        return await self._must_deliver(run_id, RunInterrupted(reason), None)

    async def resume(self, run_id: RunId) -> int:
        """Resume a waiting run."""
        return await self._must_deliver(run_id, ResumeRequested(), None)

    async def cancel(self, run_id: RunId, reason: str = "asked for by the user") -> int:
        return await self._must_deliver(run_id, CancelRequested(reason), None)

    async def note(self, run_id: RunId, event: EventData, key: str) -> bool:
        """Record an event on a run, once per key. Return False if the run has ended."""
        return await self._deliver(run_id, event, key) is not None

    # ── Approvals and questions ──

    async def decide(self, approval_id: ApprovalId, answer: "Answer") -> int:
        """Decide an approval. Raise InvalidState if it is decided already."""
        return await self.approval_service.decide(approval_id, answer)

    async def answer(self, run_id: RunId, call_id: str, text: str, by: str = "") -> int:
        """Answer a question of an agent. Raise InvalidState if it is answered already."""
        return await self.approval_service.answer(run_id, call_id, text, by)

    async def approvals(self, run_id: RunId | None = None) -> Sequence[ApprovalRecord]:
        """Return the pending approvals of one run or of all runs."""
        return await self._approvals.list_pending(run_id)

    async def approval(self, approval_id: ApprovalId) -> ApprovalRecord:
        return await self._approvals.find(approval_id)

    async def questions(self, run_id: RunId) -> Sequence[ClarifyRequested]:
        """Return the questions of a run that have no answer yet."""
        return await self.approval_service.questions(run_id)

    async def _must_deliver(self, run_id: RunId, event: Delivery, key: str | None) -> int:
        sequence = await self._deliver(run_id, event, key)
        if sequence is None:
            record = await self._runs.record(run_id)
            raise InvalidState(
                f"{run_id} has ended ({record.outcome}). "
                f"Send a message to its session {record.origin.session_id} to continue from there."
            )
        return sequence

    async def _deliver(self, run_id: RunId, event: EventData, key: str | None) -> int | None:
        draft = self._drafts.make(event)
        return await self._journal.deliver(run_id, draft, key or draft.event_id)

    # ── Following runs ──

    async def wait(self, run_id: RunId) -> EndedRun:
        """Wait for the end of a run. Return its origin and how it ended."""
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

    async def wait_for_pause(
        self, run_id: RunId, check: Callable[[], Awaitable[_Found | None]]
    ) -> _Found | PausedRun:
        """Wait until the run ends, or until it or a run below it begins to wait. A run that does not execute now is
        checked first: what the check finds is returned at once."""
        pause = self._hub.await_pause(run_id)
        try:
            if not self._hub.is_in_progress(run_id) and (found := await check()) is not None:
                return found
            return await pause
        finally:
            self._hub.stop_awaiting_pause(run_id, pause)

    async def events(
        self, run_id: RunId, after: int = 0, backlog: int = MAX_BACKLOG_EVENTS
    ) -> AsyncGenerator[Event, None]:
        """Yield durable events after a sequence, the text that is being generated, and then all further events.

        Ends after `run_end`, or after a `stream_reset` if the reader was too slow."""
        async with aclosing(self.batches(StreamReader(run_id, after, backlog))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    def batches(self, reader: StreamReader) -> AsyncGenerator[Sequence[Event], None]:
        """Yield the same events in batches of what is available, for callers that forward them."""
        return follow_run(reader, self._hub, self._journal, self._runs)

    def follow_transcript(
        self, run_id: RunId, after: int = 0, memory: MemoryAccount = UNCOUNTED
    ) -> AsyncGenerator[bytes, None]:
        """Yield the changes of a run's transcript as encoded `TranscriptChanges`: what a reader lacks that has
        everything up to `after`, and then all further changes."""
        return self._transcripts.follow(run_id, after, memory)

    def list_live_events(self, origin: Origin) -> list[Event]:
        """Return what the model and the calls of a run have written and is not stored yet."""
        data = self._hub.list_live_data(origin.run_id)
        return [self._hub.make_event(origin, durable_sequence(each), each) for each in data]

    def reset(self, origin: Origin, reason: str) -> Event:
        """Return the event that tells a reader to start again."""
        return self._hub.make_event(origin, 0, StreamReset(0, reason))

    async def page(self, run_id: RunId, after: int = 0, limit: int = 100) -> Sequence[Event]:
        """Return up to `limit` events of a run that are in the journal now."""
        return await self._journal.read(run_id, after, limit)

    async def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of a run that are in the journal now."""
        async for event in read_stored_events(self._journal, run_id, after):
            yield event

    # ── Queries ──

    async def run(self, run_id: RunId) -> RunRecord:
        return await self._runs.record(run_id)

    async def runs(self, filter: RunFilter = ALL_RUNS, limit: int = 50) -> Sequence[RunRecord]:
        """Return matching runs, newest first."""
        return await self._runs.find(filter, limit)

    async def sum_runs(self, filter: RunFilter = ALL_RUNS) -> RunSums:
        """Return the sums of all matching runs."""
        return await self._runs.sum(filter)

    async def feed(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[PositionedEvent, None]:
        """Yield committed events of all runs, or of some agents or one owner, in commit order: after a position,
        then as they are committed. Without a position, from now on."""
        async with aclosing(self.feed_pages(after, agents, owner)) as pages:
            async for page in pages:
                for placed in page:
                    yield placed

    def feed_pages(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[Sequence[PositionedEvent], None]:
        """Yield the same events in batches of what is available."""
        from treadle.operations.event_feed import durable_feed

        return durable_feed(self._hub, self._runs, after, agents, owner)

    def live_feed(
        self, after: int | None = None, agents: Sequence[str] | None = None, owner: UserId | None = None
    ) -> AsyncGenerator[Sequence["PositionedEvent | Event | Missed"], None]:
        """Yield the same, with the live events of these runs, and the number of live events that a slow reader has
        missed."""
        from treadle.operations.event_feed import live_feed

        return live_feed(self._hub, self._runs, after, agents, owner)

    async def position(self) -> int:
        """Return the position of the latest event in commit order."""
        return await self._runs.position()

    async def balance(self, account: str) -> Balance:
        """Return the usage of an account: `agent/NAME`, `token/ID` or `tree/RUN`. Only accounts with a ceiling are
        counted."""
        return await self.accounts.balance(account)

    async def agent_state(self, name: str) -> AgentState:
        return await self.accounts.state(name)

    async def set_agent_state(self, name: str, state: AgentState) -> None:
        """Set whether an agent accepts messages. Runs in progress continue."""
        await self._agent_id(name)  # registers the agent
        await self.accounts.set_state(name, state)

    async def agent_of(self, run_id: RunId) -> AgentSpec:
        """Return the agent of a run, as it was when the run was queued."""
        return (await self.queued(run_id)).agent

    async def queued(self, run_id: RunId) -> RunQueued:
        """Return the terms of a run, as it was queued."""
        return await read_queued(run_id, self._journal)

    async def client_tools_of(self, run_id: RunId) -> "Sequence[ClientTool]":
        """Return the tools that the sender of a run's message brought."""
        return (await read_queued(run_id, self._journal)).client_tools

    async def _is_command(self, run_id: RunId) -> bool:
        """Return whether a run is a session command, which answers no message."""
        first = [event.data for event in await self._journal.read(run_id, 0, 1)]
        return any(isinstance(data, RunQueued) and data.command is not None for data in first)

    async def list_unfinished(self) -> Sequence[RunRecord]:
        return await self._runs.list_unfinished()

    async def prompt(self, run_id: RunId, step: int | None = None) -> "SentPrompt":
        """Return what the model was sent at a step, by default the latest."""
        from treadle.operations.prompts import load_prompt

        return await load_prompt(run_id, step, self._journal)

    async def full_result(self, session_id: SessionId, call_id: str) -> str | None:
        """Return the full text of a truncated result; None if it is not stored."""
        return None if self._results is None else await self._results.read(session_id, call_id)

    async def replay(self, run_id: RunId, agent: AgentSpec | None = None) -> "Replayed":
        """Replay the journal of a run with the current code, and with the settings of `agent` if it is given.
        Return the first difference, if any. Nothing is changed."""
        from treadle.operations.replay_service import redact_replay, replay_stored_run

        async with self._replaying:  # one at a time: it uses a whole processor core
            stores = (self._journal, self._sessions, self._approvals)
            found = await replay_stored_run(run_id, *stores, self._tools, agent)
            return redact_replay(found, self._vault.redactor)

    async def session(self, session_id: SessionId) -> SessionRecord:
        found = await self._sessions.find(session_id)
        if found is None:
            raise unknown_session(session_id)
        return found

    async def runs_of(self, session_id: SessionId) -> Sequence[RunRecord]:
        """Return the runs of a session, in the order in which they were created."""
        return await self._sessions.runs(session_id)


def _ticket(record: RunRecord, submission: "Submission", sequence: int) -> Ticket:
    """Return the ticket of a message that was sent before. Raise UsageError if the key belongs to another user."""
    if submission.only_own and record.owner != submission.user:
        raise UsageError(f"The key `{submission.key}` is in use already. Nothing was started. Use another key.")
    return Ticket(record.origin.run_id, record.origin.session_id, max(0, sequence - 1))
