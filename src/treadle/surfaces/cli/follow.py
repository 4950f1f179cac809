"""Following a run at the terminal until it ends, waits for the user, or is interrupted."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from treadle.api.engine import HostedEngine, create_engine
from treadle.bootstrap.callers import open_readonly_caller
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, StoreError
from treadle.domain.events.permissions import Decision
from treadle.domain.ids import RunId, SessionId
from treadle.domain.permissions import Asker
from treadle.domain.runs import outcome_exit_code
from treadle.domain.transcript import (
    Change,
    ChildItem,
    EndItem,
    ItemAdded,
    ItemChanged,
    NoteItem,
    QuestionItem,
    RunTotals,
    TotalsChanged,
)
from treadle.operations import runs, transcripts
from treadle.operations.event_source import follow_without_resets
from treadle.operations.operation import Caller, list_items
from treadle.operations.run_control import INTERRUPT, StopRun
from treadle.operations.run_tree import list_members
from treadle.operations.runs import RunView
from treadle.operations.transcripts import RunTranscript, load_transcript
from treadle.surfaces.cli.approval_prompt import RunQuestions
from treadle.surfaces.cli.live_line import LiveLine, can_draw
from treadle.surfaces.cli.markdown_output import make_transcript_printer
from treadle.surfaces.cli.model_wait import ModelWait
from treadle.surfaces.cli.wait_hint import FOR_AN_ANSWER, PARKED, endpoint_option, list_questions
from treadle.surfaces.home_access.connection import HomeAccess, current_home, open_home
from treadle.surfaces.terminal.event_output import JsonLines, PlainAnswer, Printer, TranscriptPrinter
from treadle.surfaces.terminal.line_input import Prompt
from treadle.surfaces.terminal.output import format_count, note
from treadle.surfaces.terminal.process import FAILED, NEEDS_AN_ANSWER, PIPE_CLOSED, Stop

POLL_INTERVAL_SECONDS = 0.05
OnStop = Literal["interrupt", "leave"]
"""What Ctrl-C and a closed pipe do to the run that a command follows."""


class FollowOptions(Struct, frozen=True):
    """The options of a command that follows a run."""

    json: bool = False
    base_url: str | None = None
    decision: Decision | None = None
    """The decision on every approval, made in advance."""
    plain: bool = False
    """Print the answer without activity and colours."""
    on_stop: OnStop = "interrupt"

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[HomeAccess, None]:
        """Open the home, with the endpoint of the command line as a provider."""
        home = current_home()
        engine = make_engine(home)
        if self.base_url is not None:
            add_endpoint(engine, self.base_url)
        async with open_home(engine, home, self.base_url) as access:
            yield access

    def follow(self, access: HomeAccess, stop: Stop, recorded: str = "") -> "Follower":
        """Return the follower of a run, which asks its questions here."""
        printer = self.make_printer()
        questions = RunQuestions(access.client, access.home, printer, self.prompt(stop), self.decision)
        return Follower(
            access=access,
            printer=printer,
            stop=stop,
            questions=questions,
            resume_options=endpoint_option(self.base_url),
            recorded=recorded,
            on_stop=self.on_stop,
        )

    def make_printer(self) -> Printer:
        if self.json:
            return JsonLines()
        return PlainAnswer(sys.stdout) if self.plain else make_transcript_printer(sys.stdout)

    def prompt(self, stop: Stop) -> Prompt | None:
        """Return how to ask the user; None if a program or no terminal has started the command."""
        return None if self.json or not Prompt.is_possible() else Prompt(stop)

    def asker(self, stop: Stop) -> Asker | None:
        """Return who can answer questions of the run: the user at a terminal, the command itself, or None."""
        if self.prompt(stop) is not None:
            return "terminal"
        return "command" if self.decision is not None else None


def make_engine(home: Home) -> HostedEngine:
    """Return an engine that executes only the runs of this command."""
    engine = create_engine(home=home, share=ONLY_OWN)
    engine.models.local.notice = note
    return engine


def add_endpoint(engine: HostedEngine, base_url: str) -> str:
    """Add the endpoint at a URL as a provider of this process, and return its name: the host and port."""
    try:
        name = urlsplit(base_url).netloc.rpartition("@")[2] or base_url
    except ValueError:
        name = base_url  # the check of the provider reports what is wrong with it
    engine.add_provider(name, base_url=base_url, api_key_env="OPENAI_API_KEY")
    return name


class ShownRun:
    """What has been printed of a run."""

    def __init__(self, transcript: RunTranscript) -> None:
        self.transcript = transcript
        self.session_id = SessionId("")
        self.code: int | None = None
        """The exit code, if printing decided it."""

    @property
    def run_id(self) -> RunId:
        return self.transcript.run_id

    @property
    def last(self) -> int:
        """The sequence of the last stored event that was printed."""
        return self.transcript.sequence


class Follower(Struct, frozen=True):
    """Follows runs, prints their events and asks their questions."""

    access: HomeAccess
    printer: Printer
    stop: Stop
    questions: RunQuestions
    resume_options: str = ""
    """The options that `treadle runs resume` needs for this run."""
    recorded: str = ""
    """What is in the journal already, even if the run cannot continue now."""
    on_stop: OnStop = "interrupt"

    async def follow(self, run_id: RunId, after: int = 0, since: int = 0) -> int:
        """Print the events after `after` and return the exit code. Waits count only if they began after `since`."""
        interrupting = asyncio.create_task(self._interrupt_when_asked(run_id))
        if self.on_stop == "leave":
            interrupting.cancel()
        wait = self._show_waits()
        watching = asyncio.create_task(wait.watch())
        shown = ShownRun(await self._load(run_id, after))
        try:
            if not await self._settle(shown):  # questions from before, or of a run that was faster than this
                return shown.code or await self._leave_waiting(run_id)
            while True:
                try:
                    async with aclosing(follow_without_resets(self.access.client, run_id, shown.last)) as events:
                        async for event in events:
                            changes = self._show(event, shown)
                            totals = shown.transcript.totals
                            wait.observe(changes, totals)
                            is_new = event.sequence > since
                            if (ended := self._find_exit_code(shown, changes, is_new)) is not None:
                                return shown.code or ended
                            if is_new and _asks(changes, totals) and not await self._settle(shown):
                                return shown.code or await self._leave_waiting(run_id)
                except StoreError:
                    if not self.access.is_leaving:
                        raise
                if self.access.is_shared or self.stop.is_requested or not await self.access.follow_home():
                    break
            if (ended := await self._print_rest(shown, since)) is not None:
                return shown.code or ended
            self.printer.note(_explain_stopped_owner(run_id, self.resume_options))
            return shown.code or FAILED
        finally:
            interrupting.cancel()
            watching.cancel()

    def _show_waits(self) -> LiveLine | ModelWait:
        """Return what tells the user what the run waits for: a line that is overwritten, or notes now and then."""
        printer = self.printer
        if not isinstance(printer, TranscriptPrinter) or isinstance(printer, PlainAnswer) or not can_draw():
            return ModelWait(printer.note)
        line = LiveLine(lambda: printer.is_at_line_start and not self.stop.is_asking)
        printer.before_output = line.clear
        return line

    async def follow_root(self, root: RunView, run_id: RunId, since: int) -> int:
        """Follow the root of a run that was just sent something."""
        seen = since if root.run_id == run_id else root.sequence
        return await self.follow(root.run_id, after=seen, since=seen)

    async def _load(self, run_id: RunId, after: int) -> RunTranscript:
        """Return the transcript of what happened up to an event, which is not printed."""

        async def read() -> AsyncGenerator[Event, None]:
            async with aclosing(self.access.client.read_stored(run_id)) as stored:
                async for event in stored:
                    if event.sequence > after:
                        return
                    yield event

        return await load_transcript(run_id, read()) if after else RunTranscript(run_id)

    async def _print_rest(self, shown: ShownRun, since: int) -> int | None:
        """Print what the ended process had still written. Return the exit code if the run has ended or waits."""
        async with open_readonly_caller(self.access.home) as client:
            async for event in client.read_stored(shown.run_id, shown.last):
                changes = self._show(event, shown)
                ended = self._find_exit_code(shown, changes, event.sequence > since)
                if ended is not None:
                    return ended
        return None

    async def _catch_up(self, shown: ShownRun) -> None:
        """Print everything that happened before a question, which may be answered or left."""
        async for event in self.access.client.read_stored(shown.run_id, shown.last):
            self._show(event, shown)

    async def _settle(self, shown: ShownRun) -> bool:
        """Ask the questions of the run and return whether all are answered. Ctrl-C leaves them for later."""
        with self.stop.asking():
            settled = await self.questions.settle(shown.run_id, partial(self._catch_up, shown))
        if settled and self.stop.unanswered.is_set():  # it came after the last answer
            self.stop.asked.set()
        return settled

    def _show(self, event: Event, shown: ShownRun) -> Sequence[Change]:
        """Print an event once, and return its changes. If the reader of standard output is gone, interrupt the
        run."""
        if event.durable and event.sequence <= shown.last:
            return ()
        shown.session_id = event.session_id
        changes = shown.transcript.apply(event)
        try:
            self.printer.show(event, changes)
        except BrokenPipeError:
            self.stop.leave(signal.SIGPIPE)
            shown.code = PIPE_CLOSED
        return changes

    def _find_exit_code(self, shown: ShownRun, changes: Sequence[Change], is_new: bool) -> int | None:
        """Return the exit code if these are the last changes to print."""
        for change in changes:
            match change:
                case ItemAdded(EndItem() as end):
                    return self._report_end(end)
                case ItemAdded(NoteItem(topic="run_waiting")) if is_new:
                    return self._report_wait(shown)
                case _:
                    pass
        return None

    def _report_end(self, end: EndItem) -> int:
        if end.status != "completed":
            said = " ".join(f"{part.rstrip('.')}." for part in (end.reason, end.next) if part)
            self.printer.note(f"treadle: {end.outcome}: {said}")
        if end.unverified_claim:
            self.printer.note(f"treadle: unverified: no tool call did this: {end.unverified_claim}")
        return outcome_exit_code(end.outcome)

    def _report_wait(self, shown: ShownRun) -> int | None:
        """Print how a parked run continues, and return the exit code; None if it continues without the user."""
        run_id, totals = shown.run_id, shown.transcript.totals
        resume = f"treadle runs resume {run_id}{self.resume_options}"
        if totals.waiting_for == "interrupted":
            new_message = f'treadle run --session {shown.session_id}{self.resume_options} "…"'
            self.printer.note(f"Interrupted. Resume it: {resume}, or: {new_message}")
            return self.stop.exit_code
        if totals.waiting_for == "unavailable":
            recorded = f"{self.recorded} is recorded, but " if self.recorded else ""
            cause = totals.detail.rstrip(".")
            self.printer.note(f"treadle: {recorded}{run_id} cannot continue: {cause}. Then: {resume}")
            return FAILED
        return None

    async def _leave_waiting(self, run_id: RunId) -> int:
        """Print what the run waits for and how to answer it, and return the exit code."""
        for member in await list_members(self.access.client, run_id, unfinished=True):
            waiting = member.run.run_id
            for line in await list_questions(self.access.client, waiting, self.resume_options):
                self.printer.note(f"treadle: {waiting} waits for {line}")
        return self.stop.exit_code if self.stop.is_terminated else NEEDS_AN_ANSWER

    async def _interrupt_when_asked(self, run_id: RunId) -> None:
        await self.stop.asked.wait()
        self.printer.note("Interrupting … (Ctrl-C again leaves at once)")
        with suppress(InvalidState):  # it has just ended
            await self.access.client.call(INTERRUPT, StopRun(run_id, "Interrupted by the user."))

    # ── The runs of earlier processes ──

    async def announce(self, run_id: RunId | None = None) -> None:
        """Print which other runs resume because this process owns the home now."""
        if self.access.is_shared or self.access.engine is None:
            return  # other processes execute them
        resumed = [run for run in _list_resumed(await list_unfinished_runs(self.access.client)) if run != run_id]
        if resumed:
            self.printer.note(f"Resuming {format_count(len(resumed), 'unfinished run')}: {', '.join(resumed)}")

    async def wait_for_others(self, run_id: RunId) -> None:
        """Wait until this process executes no other run, unless the user stops it."""
        unfinished = () if self.access.is_shared else await list_unfinished_runs(self.access.client)
        others = [run for run in _list_resumed(unfinished) if run != run_id]
        if others and self.access.busy and not self.stop.is_requested:
            self.printer.note(f"Waiting for {', '.join(others)} (Ctrl-C leaves it for later)")
        await self._wait_until_idle()

    async def _wait_until_idle(self) -> None:
        """Wait for the runs that this process executes, and for commands that use it. From then on no command can
        attach to this process, which is about to end."""
        access = self.access
        while (access.busy or (access.attachments and access.attachments.are_open)) and not self.stop.is_requested:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.asked.wait(), POLL_INTERVAL_SECONDS)
        if access.attachments is not None:
            access.attachments.refuse_more()


async def list_unfinished_runs(caller: Caller) -> list[RunView]:
    """Return the runs that have not ended, the oldest first."""
    return list(reversed(await list_items(caller, runs.LIST, runs.ListRuns(unfinished=True))))


def _explain_stopped_owner(run_id: RunId, options: str) -> str:
    """Return what to do after the process that executed a run has ended."""
    return (
        f"treadle: the process that executed {run_id} has stopped. The run is recorded, and continues when "
        f"`treadle serve` or another command opens the home. Follow it: treadle runs events {run_id} --follow. "
        f"Continue it now: treadle runs resume {run_id}{options}"
    )


def _asks(changes: Sequence[Change], totals: RunTotals) -> bool:
    """Return whether the run or a child run of it needs an answer now."""
    for change in changes:
        match change:
            case ItemAdded(QuestionItem(during=str())):
                return True
            case ItemChanged(ChildItem(state="waiting", waiting_for=reason)) if reason in FOR_AN_ANSWER:
                return True
            case TotalsChanged() if totals.waiting_for in FOR_AN_ANSWER:
                return True
            case _:
                pass
    return False


def _list_resumed(unfinished: Sequence[RunView]) -> list[RunId]:
    """Return the runs that continue without the user: neither parked nor behind a parked run of their session."""
    held: set[str] = set()
    resumed: list[RunId] = []
    for run in unfinished:
        if run.waiting_for in PARKED:
            held.add(run.session_id)
        elif run.session_id not in held:
            resumed.append(run.run_id)
    return resumed


async def must_be_resumed(caller: Caller, run: RunView) -> bool:
    """Return whether the run continues only when it is asked to: it has ended (which the answer says), it is
    parked, or its process ended before it could be parked."""
    if run.outcome is not None or run.waiting_for in PARKED:
        return True
    return (
        await caller.call(transcripts.RUN, transcripts.ReadRunTranscript(run.run_id, limit=1))
    ).totals.is_interrupted


async def is_behind_another(caller: Caller, run: RunView) -> bool:
    """Return whether an older run of its session has not ended: then the run waits for its turn."""
    for other in await list_unfinished_runs(caller):
        if other.run_id == run.run_id:
            return False
        if other.session_id == run.session_id:
            return True
    return False


async def refuse_behind_parked(caller: Caller, run: RunView) -> None:
    """Raise InvalidState for a run behind a parked run of its session: following it would not end."""
    for other in await list_unfinished_runs(caller):
        if other.run_id == run.run_id:
            return
        if other.session_id == run.session_id and other.waiting_for in PARKED:
            raise InvalidState(
                f"{run.run_id} is behind {other.run_id} of the same session, which waits "
                f"({other.waiting_for}). Resume or cancel that one first."
            )
