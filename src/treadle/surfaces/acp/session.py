"""One session in one editor: its prompts, and everything that happens in it, whichever surface causes it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from acp import RequestError
from acp.schema import PromptResponse, SessionInfoUpdate, StopReason, Usage

from treadle.domain.agents import AgentSpec
from treadle.domain.attachments import parse_attached_file
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, StoreError, TreadleError, UnknownSession
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Text
from treadle.domain.modes import ApprovalMode
from treadle.domain.transcript import (
    ApprovalItem,
    Change,
    ChildItem,
    ItemAdded,
    ItemChanged,
    MessageItem,
    QuestionItem,
    RunTotals,
)
from treadle.operations import sessions
from treadle.operations.attachments import Attachment
from treadle.operations.event_source import follow_without_resets
from treadle.operations.requested_run import RequestedRun
from treadle.operations.run_control import ANSWER, CANCEL, STEER, AnswerQuestion, SteerRun, StopRun
from treadle.operations.run_start import START_LOCAL, StartLocalRun
from treadle.surfaces.acp.client import EditorClient
from treadle.surfaces.acp.errors import FAILED, INVALID_REQUEST
from treadle.surfaces.acp.permission_requests import BY, EditorQuestion, PermissionRequests
from treadle.surfaces.acp.prompt_blocks import PromptParts
from treadle.surfaces.acp.run_updates import PARKED, RunUpdates, TextPiece, Update, find_stop_reason
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.home_access.session_runs import find_next_run
from treadle.system.workspace_identity import find_workspace

STARTS = ("run_queued", "run_start")
"""Events after which another run of the session may be in progress."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class PromptTurn:
    """A prompt in progress."""

    response: "asyncio.Future[PromptResponse]"
    run_id: RunId | None = None
    is_cancelled: bool = False


class EditorSession:
    """A session that the editor has open. One run of a session executes at a time."""

    def __init__(
        self,
        link: HomeLink,
        client: EditorClient,
        session_id: SessionId,
        folder: Path,
        make_agent: Callable[[], AgentSpec],
        get_mode: Callable[[], ApprovalMode | None],
        show_mode: Callable[[ApprovalMode | None], Awaitable[None]],
    ) -> None:
        self.session_id = session_id
        self.folder = folder
        self._link = link
        self._client = client
        self._make_agent = make_agent
        self._get_mode = get_mode
        self._show_mode = show_mode
        self._current: RunUpdates | None = None
        self._following: asyncio.Task[None] | None = None
        self._turn: PromptTurn | None = None
        self._sending = asyncio.Lock()
        """Held while a message is sent: until then it is not known which run gets it."""
        self._own: Counter[RunId] = Counter()
        """How many messages of this editor are still to come in the journal of a run."""
        self._ended: set[RunId] = set()
        self._cost = 0.0
        self._usage = (0, 0, 0)
        self._title = ""
        self._sync_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = PermissionRequests(link, client, session_id, folder, self._ask_in_chat)

    @property
    def is_busy(self) -> bool:
        """Return whether a run of the session is in progress, or waits."""
        return self._current is not None and self._current.end is None

    @property
    def has_prompt(self) -> bool:
        """Return whether a prompt of this editor is in progress."""
        return self._turn is not None

    @property
    def open_run(self) -> RunId | None:
        """Return the run of the session that is in progress, or waits."""
        return self._current.run_id if self._current is not None and self.is_busy else None

    # ── Opening and closing ──

    async def read_past(self, *, is_shown: bool) -> None:
        """Read what has happened so far, and show it if wanted. A run in progress is followed from there."""
        found = (await self._link.call(sessions.RUNS, sessions.RunsOfSession(self.session_id))).items
        for run in found:
            if run.parent_run_id is not None:
                continue
            updates = self._make_updates(run.run_id)
            updates.is_past = True
            async with aclosing(self._link.read_stored(run.run_id)) as events:
                async for event in events:
                    for update in updates.show(updates.apply(event)):
                        if is_shown:
                            await self._show(update)
            updates.is_past = False
            self._current = updates
            if updates.end is None:
                return
            self._finish(updates)

    async def start(self) -> None:
        """Follow the run in progress, and ask what it waits for."""
        await self.sync()

    async def close(self) -> None:
        """Stop showing the session. A prompt in progress is cancelled."""
        if self._turn is not None:
            await self.cancel()
            self._end_turn("cancelled")
        await self.leave()

    async def leave(self) -> None:
        """Stop showing the session, and leave its run as it is."""
        await self._requests.close()
        for task in (self._following, *self._tasks):
            if task is not None:
                task.cancel()

    # ── Prompts ──

    async def prompt(self, parts: PromptParts) -> PromptResponse:
        """Send a message to the agent and wait for the end of the turn."""
        if self._turn is not None:
            raise RequestError(
                INVALID_REQUEST,
                f"A prompt of session {self.session_id} is in progress. Wait for its answer, or cancel it first "
                "with session/cancel.",
            )
        turn = self._turn = PromptTurn(asyncio.get_running_loop().create_future())
        try:
            async with self._sending:
                turn.run_id = await self._send(parts)
            if turn.is_cancelled:
                await self._cancel_run(turn.run_id)
            await self.sync()
            response = await turn.response
        finally:
            self._turn = None
        await self._show_title()
        return response

    async def _send(self, parts: PromptParts) -> RunId:
        """Send a message: as the answer to a question, to the run in progress, or as a new run."""
        current, asked, key = self._current, self._requests.question, self._link.make_key()
        if asked is not None and current is not None:
            with suppress(InvalidState):  # it was answered elsewhere
                await self._link.call(
                    ANSWER, AnswerQuestion(asked.run_id, asked.question.call_id, parts.whole_text, BY), key=key
                )
                self._requests.question = None
                return current.run_id
        if current is not None and self.is_busy and not parts.text.startswith("/"):
            self._own[current.run_id] += 1
            try:
                sent = tuple(map(_as_attachment, parts.attachments))
                request = SteerRun(current.run_id, parts.text, "steer", sent, find_workspace(self.folder))
                await self._link.call(STEER, request, key=key)
                return current.run_id
            except InvalidState:  # it has just ended, or works in another folder
                self._own[current.run_id] -= 1
            except BaseException:
                self._own[current.run_id] -= 1
                raise
        mode = self._get_mode() if current is None else None  # a session with a run has its own
        run = RequestedRun(self._make_agent(), parts.message, self.session_id, asker="editor", mode=mode)
        ticket = await self._link.call(START_LOCAL, StartLocalRun(run), key=key)
        self._own[ticket.run_id] += 1
        return ticket.run_id

    async def cancel(self) -> None:
        """Cancel the prompt in progress, or else the run in progress: its model call, its tools and child runs."""
        turn = self._turn
        if turn is not None:
            turn.is_cancelled = True
            if turn.run_id is not None:
                await self._cancel_run(turn.run_id)
        elif self._current is not None and self.is_busy:
            await self._cancel_run(self._current.run_id)

    async def _cancel_run(self, run_id: RunId) -> None:
        with suppress(InvalidState):
            request = StopRun(run_id, "asked for in the editor")
            await self._link.call(CANCEL, request, key=self._link.make_key())

    def _end_turn(self, reason: StopReason) -> None:
        turn = self._turn
        if turn is None or turn.response.done():
            return
        taken, given, cached = self._usage
        usage = Usage(
            total_tokens=taken + given,
            input_tokens=taken,
            output_tokens=given,
            cached_read_tokens=cached or None,
        )
        stop: StopReason = "cancelled" if turn.is_cancelled else reason
        turn.response.set_result(PromptResponse(stop_reason=stop, usage=usage))

    def _fail_turn(self, text: str, kind: str) -> None:
        turn = self._turn
        if turn is not None and not turn.response.done():
            if turn.is_cancelled:
                self._end_turn("cancelled")
            else:
                turn.response.set_exception(RequestError(FAILED, text, {"type": kind}))

    # ── Following ──

    async def sync(self) -> None:
        """Follow the run that is in progress, or the run of the prompt."""
        async with self._sync_lock:
            if self._following is not None and not self._following.done():
                return
            turn, current = self._turn, self._current
            if current is not None and current.end is None:
                self._follow(current.run_id)  # it may have ended since it was read
                return
            try:
                found = await find_next_run(self._link, self.session_id, current and current.run_id)
            except UnknownSession:
                found = None
            if found is not None:
                self._follow(found.run_id)
            elif turn is not None and turn.run_id is not None and turn.run_id not in self._ended:
                self._follow(turn.run_id)  # it was cancelled before it began

    def observe(self, event: Event) -> None:
        """Notice an event of the session that any surface has caused."""
        if event.type in STARTS:
            self.spawn(self.sync())

    def reconnect(self) -> None:
        """Follow the run again after another process has taken the home."""
        if self._following is not None:
            self._following.cancel()
            self._following = None
        self.spawn(self.sync())

    def _follow(self, run_id: RunId) -> None:
        if self._current is None or self._current.run_id != run_id:
            self._current = self._make_updates(run_id)
        self._following = asyncio.create_task(self._read_run(self._current))

    def _make_updates(self, run_id: RunId) -> RunUpdates:
        return RunUpdates(run_id, self.folder, self._cost)

    async def _read_run(self, updates: RunUpdates) -> None:
        try:
            await self._refresh_requests()
            async with aclosing(follow_without_resets(self._link, updates.run_id, updates.sequence)) as events:
                async for event in events:
                    before = updates.totals
                    changes = updates.apply(event)
                    is_own = await self._is_own(changes)
                    for update in updates.show(changes, is_own=is_own):
                        await self._show(update)
                    self._note_changes(updates, changes, before)
                    if updates.totals.mode != before.mode:
                        await self._show_mode(updates.totals.mode)
        except (StoreError, ConnectionError):
            return  # the link reports it, and the run is followed again afterwards
        except TreadleError as error:
            log.warning("Following %s failed: %s", updates.run_id, error)
            self._fail_turn(str(error), type(error).__name__)
            return
        except Exception:
            log.exception("Following %s failed", updates.run_id)
            self._fail_turn("Unexpected error: the run cannot be shown. Load the session again.", "Unexpected")
            return
        if updates.end is not None:
            await self._end(updates)

    async def _is_own(self, changes: Sequence[Change]) -> bool:
        """Return whether changes begin with a message of this editor."""
        match changes:
            case [ItemAdded(MessageItem(run_id=run_id, delivery=delivery)), *_]:
                async with self._sending:
                    pass
                is_own = self._own[run_id] > 0
                if is_own and delivery != "command":
                    self._own[run_id] -= 1
                return is_own
            case _:
                return False

    def _note_changes(self, updates: RunUpdates, changes: Sequence[Change], before: RunTotals) -> None:
        items = [change.item for change in changes if isinstance(change, ItemAdded | ItemChanged)]
        totals = updates.totals
        is_parked = totals.status == "waiting" and totals is not before
        if is_parked or any(isinstance(item, ApprovalItem | QuestionItem | ChildItem) for item in items):
            self.spawn(self._refresh_requests())
        if is_parked and self._is_turn_of(updates.run_id):
            if totals.waiting_for == "interrupted":
                self._end_turn("cancelled")
            elif totals.waiting_for in PARKED and totals.wake_at is None:
                self._fail_turn(f"The run waits ({totals.waiting_for}): {totals.detail}", "Waiting")

    def _is_turn_of(self, run_id: RunId) -> bool:
        return self._turn is not None and self._turn.run_id == run_id

    async def _end(self, updates: RunUpdates) -> None:
        async with self._sending:
            pass
        self._finish(updates)
        await self._requests.refresh(None)
        if self._is_turn_of(updates.run_id):
            reason = find_stop_reason(updates)
            if reason is None:
                assert updates.end is not None
                self._fail_turn(updates.explain_end(), updates.end.outcome)
            else:
                self._end_turn(reason)
        self.spawn(self.sync())

    def _finish(self, updates: RunUpdates) -> None:
        """Count what a run has used, once."""
        if updates.run_id in self._ended:
            return
        self._ended.add(updates.run_id)
        used = updates.totals
        taken, given, cached = self._usage
        self._usage = (taken + used.input_tokens, given + used.output_tokens, cached + used.cache_read_tokens)
        self._cost += used.tree_cost or 0.0

    # ── Showing ──

    async def _show(self, update: Update) -> None:
        if isinstance(update, TextPiece):
            await self._client.send_text(self.session_id, update.kind, update.message_id, update.text)
        else:
            await self._client.update(self.session_id, update)

    async def _refresh_requests(self) -> None:
        current = self._current
        await self._requests.refresh(None if current is None or current.end is not None else current.run_id)

    async def _ask_in_chat(self, asked: EditorQuestion) -> None:
        """Ask a question as a message. The turn ends, and the next prompt is the answer."""
        question = asked.question
        lines = [question.question, *(f"{number}. {each}" for number, each in enumerate(question.options, start=1))]
        message_id = f"{asked.run_id}:{question.call_id}"
        await self._client.send_text(self.session_id, "agent_message_chunk", message_id, "\n\n" + "\n".join(lines))
        self._end_turn("end_turn")

    async def _show_title(self) -> None:
        with suppress(TreadleError, ConnectionError):
            found = await self._link.call(sessions.SHOW, sessions.ShowSession(self.session_id))
            if found.title != self._title:
                self._title = found.title
                update = SessionInfoUpdate(
                    session_update="session_info_update", title=found.title, updated_at=found.latest_at.isoformat()
                )
                await self._client.update(self.session_id, update)

    def spawn(self, work: Awaitable[None]) -> None:
        async def perform() -> None:
            try:
                await work
            except (StoreError, ConnectionError):
                pass  # the link reports it
            except Exception:
                log.exception("A task of session %s failed", self.session_id)

        task = asyncio.create_task(perform())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _as_attachment(part: Text | Image) -> Attachment:
    if isinstance(part, Image):
        return Attachment(part.media_type, part.data)
    name, text = parse_attached_file(part.text)
    return Attachment(name=name, text=text)
