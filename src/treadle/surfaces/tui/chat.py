"""One conversation: sends what the user types, follows the runs of the session, and keeps the transcript."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import aclosing, suppress
from contextvars import copy_context

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import ConfigError, InvalidState, StoreError, TreadleError, UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Message, Text, user
from treadle.domain.modes import ApprovalMode
from treadle.domain.transcript import (
    ApprovalItem,
    Change,
    ChildItem,
    EndItem,
    ItemAdded,
    ItemChanged,
    PlanStep,
    QuestionItem,
    TotalsChanged,
)
from treadle.operations import approvals, run_control, runs, sessions
from treadle.operations.approval_service import Answer
from treadle.operations.event_source import follow_without_resets
from treadle.operations.forks import Fork
from treadle.operations.local_admin import FORK, ForkWhole
from treadle.operations.operation import list_items
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_control import AnswerQuestion, SteerRun, StopRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun
from treadle.operations.runs import RunView
from treadle.surfaces.home_access.home_link import HomeLink, LinkState
from treadle.surfaces.home_access.references import find_agent
from treadle.surfaces.home_access.session_folder import find_agent_folder, use_folder
from treadle.surfaces.home_access.session_runs import find_next_run
from treadle.surfaces.tui.attachments import to_sent_attachment
from treadle.surfaces.tui.chat_run import ChatRun
from treadle.surfaces.tui.chat_state import (
    ChatListener,
    ForkSource,
    Pending,
    PendingApproval,
    PendingQuestion,
    QueuedMessage,
    SessionTotals,
)
from treadle.surfaces.tui.model_choice import check_model
from treadle.surfaces.tui.pending import find_pending
from treadle.surfaces.tui.session_pages import EarlierRun, SessionPages
from treadle.surfaces.tui.transcript import SessionTranscript
from treadle.system.workspace_identity import find_workspace

BY = "terminal"
STARTS_OR_ENDS = ("run_queued", "run_start", "run_end", "cancel_requested")
"""Events after which another run of the session may be in progress."""
RECONNECT_SECONDS = 0.3


class Chat:
    """The conversation with one agent in one session. Only one run of a session is in progress at a time."""

    def __init__(self, link: HomeLink, agent: str, listener: ChatListener, model: str | None = None) -> None:
        self.link = link
        self.agent_name = agent
        self.model = model
        self.mode: ApprovalMode | None = None
        """The mode of the session; None: the approval rules of the agent decide alone."""
        self.folder = ""
        """The folder of a session that continues elsewhere; empty: the current one."""
        self.session_id: SessionId | None = None
        self.title = ""
        self.queued: list[QueuedMessage] = []
        self.pending: list[Pending] = []
        self.totals = SessionTotals()
        self._listener = listener
        self.transcript = SessionTranscript(listener.show_change)
        self.run: ChatRun | None = None
        """The current run, or the last one."""
        self._last_shown: RunId | None = None
        self._asking: dict[str, bool] = {}
        """Whether an agent asks by default."""
        self._pages: SessionPages | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._sync_lock, self._order = asyncio.Lock(), asyncio.Lock()
        self._context = copy_context()
        link.watch = self._on_link_change

    # ── The state ──

    @property
    def is_busy(self) -> bool:
        """Return whether a run of the session is in progress, or waits."""
        return self.run is not None and not self.run.ended

    @property
    def plan(self) -> tuple[PlanStep, ...]:
        """The plan of the run in progress; empty if it has none."""
        return self.run.plan if self.run is not None and self.is_busy else ()

    @property
    def waits_for(self) -> str | None:
        """Return what the run waits for, if it waits."""
        return None if self.run is None else self.run.waits_for

    @property
    def latest_run(self) -> RunId | None:
        """The run on the screen that was started last."""
        return self._last_shown

    @property
    def has_earlier(self) -> bool:
        return self._pages is not None and self._pages.has_more

    def spec(self) -> AgentSpec:
        """Return the agent as its file is now, with the chosen model. Raise UsageError if no model is set."""
        return self._make_spec(self.folder)

    def _make_spec(self, folder: str) -> AgentSpec:
        return use_folder(find_agent(self.link.home, self.agent_name, self.model), folder)

    def has_model(self) -> bool:
        """Return whether a model is set for the agent. Raise ConfigError if its files cannot be read."""
        try:
            return bool(self.spec().model)
        except ConfigError:
            raise
        except UsageError:
            return False

    # ── Sessions ──

    async def start(self, session_id: SessionId | None, folder: str = "") -> None:
        """Begin with a session, or with a new one, in a folder or in the current one."""
        self._context = copy_context()  # what the display needs in tasks that other tasks cause
        self._feeding = asyncio.create_task(self._feed())
        await self.open_session(session_id, folder=folder)

    async def open_session(self, session_id: SessionId | None, agent: str | None = None, folder: str = "") -> None:
        """Show another session, which continues in this folder; None begins a new one, with this agent. Messages
        sent meanwhile go there."""
        async with self._order:
            if agent is not None:
                self.agent_name, self.model, self.mode = agent, None, None
            await self._open_session(session_id)
            self.folder = folder

    async def _open_session(self, session_id: SessionId | None) -> None:
        if session_id is not None:  # first: a session that cannot be read is not opened
            detail = await self.link.call(sessions.SHOW, sessions.ShowSession(session_id))
            found = list((await self.link.call(sessions.RUNS, sessions.RunsOfSession(session_id))).items)
        else:
            detail, found = None, []
        await self._stop_following()
        self.session_id, self.title, self._pages, self.run = session_id, "", None, None
        self.queued, self.pending, self.totals, self._last_shown = [], [], SessionTotals(), None
        self.transcript.clear()
        if detail is not None:
            self.title, self.model, self.mode = detail.title, detail.model, detail.mode
            current = next((run for run in found if run.outcome is None), None)
            past = found if current is None else found[: found.index(current)]
            if found:
                self.agent_name = found[-1].agent if found[-1].agent in self.link.home.agents() else self.agent_name
            self._last_shown = past[-1].run_id if past else None
            self._pages = SessionPages(self.link, past)
            if past:
                await self.load_earlier()
        self._listener.show_change(None)
        await self.sync()
        self._listener.show_pending()
        self._listener.show_state()

    async def load_earlier(self) -> bool:
        """Add the page before the transcript; return whether there was one."""
        pages = self._pages
        if pages is None or not pages.has_more:
            return False
        items, past = await pages.read_page()
        if pages is not self._pages:
            return False  # another session was opened meanwhile
        for each in past:
            self.totals.add_earlier(each)
        self.transcript.prepend(items)
        return True

    async def sync(self) -> None:
        """Follow the run that is in progress, and read which messages are queued."""
        async with self._sync_lock:
            session_id = self.session_id
            if session_id is None:
                return
            wanted = runs.ListRuns(session_id=session_id, unfinished=True)
            found = list(reversed(await list_items(self.link, runs.LIST, wanted, 50)))
            if session_id != self.session_id:
                return
            current = self.run.run_id if self.run is not None and self.is_busy else None
            if (
                current is None
                and (run := await find_next_run(self.link, session_id, self._last_shown)) is not None
            ):
                if session_id != self.session_id:
                    return
                current = run.run_id
                self._follow(run)
            await self._read_queue([run for run in found if run.run_id != current])
        self._listener.show_state()

    async def _read_queue(self, waiting: list[RunView]) -> None:
        known = {message.run_id: message for message in self.queued}
        self.queued = [
            known.get(run.run_id)
            or QueuedMessage(run.run_id, (await self.link.call(runs.SHOW, runs.ShowRun(run.run_id))).message)
            for run in waiting
            if run.parent_run_id is None
        ]

    # ── Following ──

    def _follow(self, run: RunView) -> None:
        self._last_shown = run.run_id
        if self.run is None or self.run.run_id != run.run_id:
            self.run = ChatRun(run.run_id, self.transcript)
        if self._following is not None and not self._following.done():
            self._following.cancel()
        self._following = asyncio.create_task(self._read_run(self.run))

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
            self._following = None

    async def _read_run(self, run: ChatRun) -> None:
        try:
            async with aclosing(follow_without_resets(self.link, run.run_id, run.sequence)) as events:
                async for event in events:
                    before = run.totals
                    self._note_changes(run.apply(event))
                    if run.totals.mode != before.mode:
                        self.mode = run.totals.mode
                    if run.totals is not before:
                        self._listener.show_state()
                    if run.waits_for != before.waiting_for and run.waits_for in ("interrupted", "unavailable"):
                        self._listener.show_end(run)
        except StoreError:
            pass  # the link reports it, and the run is followed again afterwards
        except TreadleError as error:
            self._listener.show_error(str(error))
        if run.ended:
            self.totals.add(EarlierRun(run.run_id, run.totals))
            self._listener.show_end(run)
            self._spawn(self.sync())

    def _note_changes(self, changes: Sequence[Change]) -> None:
        """Read the pending approvals and questions again if they may differ."""
        for change in changes:
            match change:
                case ItemAdded(item) | ItemChanged(item):
                    is_running = isinstance(item, ChildItem) and item.state == "running" and not self.pending
                    if isinstance(item, ApprovalItem | QuestionItem | ChildItem | EndItem) and not is_running:
                        self._spawn(self.refresh_pending())
                        return
                case TotalsChanged(totals) if totals.status == "waiting":
                    self._spawn(self.refresh_pending())
                    return
                case _:
                    pass

    async def _feed(self) -> None:
        """Watch all runs: other surfaces start runs in this session, and child runs do their work."""
        while True:
            access = self.link.access
            if access is not None:
                with suppress(StoreError):
                    async with aclosing(self.link.feed()) as feed:
                        async for event in feed:
                            self._handle_event(event)
                if self.link.access is access:  # its owner has ended
                    self.link.report_lost()
            await asyncio.sleep(RECONNECT_SECONDS)

    def _handle_event(self, event: Event) -> None:
        if event.session_id == self.session_id:
            if event.type in STARTS_OR_ENDS:
                self._spawn(self.sync())
        elif self.run is not None and event.run_id in self.run.children:
            self._note_changes(self.run.apply(event))
            self._listener.handle_child_event(event)

    def _on_link_change(self, state: LinkState, detail: str) -> None:
        self._context.copy().run(self._listener.show_link, state, detail)
        if state in ("owner", "attached") and self._feeding is not None:
            self._spawn(self._reconnect())

    async def _reconnect(self) -> None:
        """Follow the run again after another process has taken the home."""
        run = self.run
        if run is not None and not run.ended:
            await self._stop_following()
            self._following = asyncio.create_task(self._read_run(run))
        await self.sync()
        await self.refresh_pending()

    async def refresh_pending(self) -> None:
        """Read which approvals and questions of the run and its child runs are open."""
        run = self.run
        found = [] if run is None or run.ended else await find_pending(self.link, run.run_id)
        if [each.key for each in found] != [each.key for each in self.pending]:
            self.pending = found
            self._listener.show_pending()

    def _spawn(self, work: Awaitable[None]) -> None:
        async def perform() -> None:
            try:
                await work
            except StoreError:
                pass  # the link reports it
            except TreadleError as error:
                self._listener.show_error(str(error))

        task = asyncio.create_task(perform(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── What the user does ──

    async def send(self, text: str, parts: tuple[Text | Image, ...] = ()) -> None:
        """Send a message: to the run that is in progress, or as a new run. A run that works in another folder does
        not get it."""
        async with self._order:
            if self.is_busy and not text.startswith("/"):
                assert self.run is not None
                with suppress(InvalidState):  # it has just ended, or works in another folder
                    sent = tuple(map(to_sent_attachment, parts))
                    here = find_workspace(find_agent_folder(self.spec()))
                    request = SteerRun(self.run.run_id, text, "steer", sent, here)
                    await self.link.call(run_control.STEER, request, key=self.link.make_key())
                    return
            await self._submit(user(text, *parts))

    async def queue(self, text: str, parts: tuple[Text | Image, ...] = ()) -> None:
        """Send a message for after the run that is in progress."""
        async with self._order:
            await self._submit(user(text, *parts), after_current=True)

    async def _submit(self, message: Message, *, after_current: bool = False) -> None:
        run = RequestedRun(
            agent=self.spec(),
            message=message,
            session_id=self.session_id,
            asker="terminal",
            has_own_model=self.model is not None,
            after_current=after_current,
            mode=self.mode if self.session_id is None else None,
        )
        try:
            ticket = await self.link.call(START_LOCAL, StartLocalRun(run), key=self.link.make_key())
        except InvalidState:
            if self.session_id is None and self.mode == "auto":  # there is no sandbox
                self.mode = None
            raise
        if self.session_id is None and self.model is not None:
            await self.link.call(sessions.SET_MODEL, sessions.SetModel(ticket.session_id, self.model))
        self.session_id = ticket.session_id
        await self.sync()

    async def unqueue(self, message: QueuedMessage) -> None:
        """Remove a message from the queue. Raise InvalidState if it has just started."""
        await self.link.call(run_control.CANCEL, StopRun(message.run_id, "Removed from the queue by the user."))
        self.queued = [each for each in self.queued if each is not message]
        self._listener.show_state()

    async def set_model(self, name: str) -> None:
        """Use another model for the next messages of the session. Raise UnknownModel or MissingKey if it cannot be
        called."""
        async with self._order:
            if self.session_id is not None:
                await self.link.call(sessions.SET_MODEL, sessions.SetModel(self.session_id, name))
            else:
                await check_model(self.link, name)
            self.model = name
        self.spec()  # raises an error for an agent that cannot be read

    @property
    def effective_mode(self) -> ApprovalMode | None:
        """The mode of the session; `ask` if it has none and the rules of the agent ask by default."""
        return "ask" if self.mode is None and self._asks_by_default() else self.mode

    def _asks_by_default(self) -> bool:
        if self.agent_name not in self._asking:  # reading the file of the agent takes a while
            try:
                self._asking[self.agent_name] = self.spec().approvals.default == "ask"
            except TreadleError:
                return False
        return self._asking[self.agent_name]

    async def set_mode(self, mode: ApprovalMode | None) -> None:
        """Choose the mode of the session, from the next tool call on. Raise InvalidState if it needs a sandbox and
        there is none."""
        async with self._order:
            if self.session_id is not None:
                await self.link.call(sessions.SET_MODE, sessions.SetMode(self.session_id, mode))
            self.mode = mode
        self._listener.show_state()

    async def interrupt(self) -> None:
        if self.run is not None:
            with suppress(InvalidState):
                await self.link.call(run_control.INTERRUPT, StopRun(self.run.run_id, "Interrupted by the user."))

    async def cancel(self) -> None:
        if self.run is not None:
            with suppress(InvalidState):
                await self.link.call(run_control.CANCEL, StopRun(self.run.run_id, "asked for by the user"))

    async def resume(self) -> None:
        if self.run is not None:
            with suppress(InvalidState):
                await self.link.call(run_control.RESUME, runs.OneRun(self.run.run_id))

    async def decide(self, approval: PendingApproval, answer: Answer) -> None:
        """Decide an approval. Raise InvalidState if it was decided elsewhere, UsageError for wrong arguments."""
        await self.link.call(approvals.DECIDE, approvals.decision_of(approval.view.approval_id, answer))
        await self.refresh_pending()

    async def answer(self, question: PendingQuestion, text: str) -> None:
        await self.link.call(
            run_control.ANSWER, AnswerQuestion(question.run_id, question.question.call_id, text, BY)
        )
        await self.refresh_pending()

    async def fork(self, source: ForkSource, message: str) -> None:
        """Continue from before a message of an earlier run, with another message, in a new session."""
        if not message.strip():
            raise UsageError("The message is empty. Write one to fork with.")
        async with self._order:
            agent = self._make_spec(source.folder)
            fork = Fork(source.run_id, 1, message=message, agent=agent, asker="terminal")
            ticket = await self.link.call(FORK, ForkWhole(fork), key=self.link.make_key())
            await self._open_session(ticket.session_id)
            self.folder = source.folder

    async def close(self) -> None:
        await self._stop_following()
        for task in (self._feeding, *self._tasks):
            if task is not None:
                task.cancel()
