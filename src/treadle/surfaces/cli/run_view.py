"""A run, followed from a terminal: until it ends, waits for somebody, or is interrupted."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

from msgspec import Struct

from treadle.bootstrap.callers import open_readonly_caller
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, StoreError
from treadle.domain.events import AgentWaiting, RunEnd, RunWaiting
from treadle.domain.ids import RunId
from treadle.domain.runs import outcome_exit_code
from treadle.operations import runs
from treadle.operations.operation import Caller, list_items
from treadle.operations.run_control import INTERRUPT, StopRun
from treadle.operations.run_stream import follow_without_resets
from treadle.operations.run_tree import family
from treadle.operations.runs import RunView
from treadle.surfaces.cli.approval_prompt import Asking
from treadle.surfaces.cli.connection import Reached
from treadle.surfaces.cli.event_output import Printer
from treadle.surfaces.cli.model_wait import ModelWait
from treadle.surfaces.cli.process import FAILED, NEEDS_AN_ANSWER, PIPE_CLOSED, Stop
from treadle.surfaces.cli.wait_hint import FOR_AN_ANSWER, PARKED, questions_of

LOOK_SECONDS = 0.05


class Following(Struct, frozen=True):
    """What is needed to follow a run."""

    reached: Reached
    printer: Printer
    stop: Stop
    asking: Asking
    resume_options: str = ""
    """What `treadle runs resume` must be given to go on with this run."""
    recorded: str = ""
    """What is in the journal already, also when the run cannot go on now."""

    async def run(self, run_id: RunId, after: int = 0, since: int = 0) -> int:
        """Show the events after `after` and return the exit code. A wait counts only if it began after `since`."""
        interrupting = asyncio.create_task(self._interrupt_when_asked(run_id))
        wait = ModelWait(self.printer.note)
        watching = asyncio.create_task(wait.watch())
        code, last = None, after
        try:
            if not await self._settle(run_id):  # what it has asked before
                return await self._left_waiting(run_id)
            while True:
                try:
                    async with aclosing(follow_without_resets(self.reached.client, run_id, last)) as events:
                        async for event in events:
                            last = event.sequence if event.durable else last
                            wait.see(event)
                            code = self._show(event) or code
                            if (ended := self._ended(event, since)) is not None:
                                return code or ended
                            if _asks(event) and event.sequence > since and not await self._settle(run_id):
                                return code or await self._left_waiting(run_id)
                except StoreError:
                    if not self.reached.is_leaving:
                        raise
                if self.reached.is_shared or self.stop.is_heard or not await self.reached.follow_home():
                    break
            if (ended := await self._left_behind(run_id, last, since)) is not None:
                return code or ended
            self.printer.note(_stopped(run_id, self.resume_options))
            return code or FAILED
        finally:
            interrupting.cancel()
            watching.cancel()

    async def whole(self, root: RunView, run_id: RunId, since: int) -> int:
        """Follow a run that was just told something; of one under others, the root, as it goes on from there."""
        seen = since if root.run_id == run_id else root.sequence
        return await self.run(root.run_id, after=seen, since=seen)

    async def _left_behind(self, run_id: RunId, last: int, since: int) -> int | None:
        """Show what the process that has gone had written still; the exit code, if the run has ended or waits."""
        async with open_readonly_caller(self.reached.home) as client:
            async for event in client.stored(run_id, last):
                self._show(event)
                if (ended := self._ended(event, since)) is not None:
                    return ended
        return None

    async def _settle(self, run_id: RunId) -> bool:
        """Have answered what the run asks. Ctrl-C meanwhile leaves the question for later, and the run as it is."""
        with self.stop.asking():
            settled = await self.asking.settle(run_id)
        if settled and self.stop.unanswered.is_set():  # it came when the last answer had been given
            self.stop.asked.set()
        return settled

    def _show(self, event: Event) -> int | None:
        """Print an event. When nobody reads any more, park the run, so that it does not go on unseen."""
        try:
            self.printer.show(event)
        except BrokenPipeError:
            self.stop.asked.set()
            return PIPE_CLOSED
        return None

    def _ended(self, event: Event, since: int) -> int | None:
        """The exit code if this is the last event to be shown."""
        resume = f"treadle runs resume {event.run_id}{self.resume_options}"
        match event.data:
            case RunEnd() as end:
                if end.status != "completed":
                    said = " ".join(f"{part.rstrip('.')}." for part in (end.reason, end.next) if part)
                    self.printer.note(f"treadle: {end.outcome}: {said}")
                if end.unverified_claim:
                    self.printer.note(f"treadle: unverified: no call has done this: {end.unverified_claim}")
                return outcome_exit_code(end.outcome)
            case RunWaiting("interrupted") if event.sequence > since:
                new_message = f'treadle run --session {event.session_id}{self.resume_options} "…"'
                self.printer.note(f"interrupted; go on with: {resume}, or: {new_message}")
                return self.stop.exit_code
            case RunWaiting("unavailable", detail) if event.sequence > since:
                recorded = f"{self.recorded} is recorded, and " if self.recorded else ""
                said = detail.rstrip(".")
                self.printer.note(f"treadle: {recorded}{event.run_id} cannot go on: {said}. Then: {resume}")
                return FAILED
            case _:
                return None

    async def _left_waiting(self, run_id: RunId) -> int:
        """Say what the run waits for and how to answer it, and leave it."""
        for member in await family(self.reached.client, run_id, unfinished=True):
            waiting = member.run.run_id
            for line in await questions_of(self.reached.client, waiting, self.resume_options):
                self.printer.note(f"treadle: {waiting} waits for {line}")
        return self.stop.exit_code if self.stop.is_terminated else NEEDS_AN_ANSWER

    async def _interrupt_when_asked(self, run_id: RunId) -> None:
        await self.stop.asked.wait()
        self.printer.note("interrupting… (Ctrl-C once more leaves at once)")
        with suppress(InvalidState):  # it has just ended
            await self.reached.client.call(INTERRUPT, StopRun(run_id, "Interrupted by the user."))

    # ── The runs of earlier processes ──

    async def announce(self, run_id: RunId | None = None) -> None:
        """Say which runs beside this one are taken up again because the engine was opened."""
        if self.reached.is_shared:
            return  # those are for others
        taken = [run for run in _taken_up(await unfinished_runs(self.reached.client)) if run != run_id]
        if taken:
            runs = "run" if len(taken) == 1 else "runs"
            self.printer.note(f"taking up {len(taken)} unfinished {runs}: {', '.join(taken)}")

    async def see_off_others(self, run_id: RunId) -> None:
        """Wait while other runs are being worked on, unless asked to stop."""
        unfinished = () if self.reached.is_shared else await unfinished_runs(self.reached.client)
        others = [run for run in _taken_up(unfinished) if run != run_id]
        if others and self.reached.busy and not self.stop.is_heard:
            self.printer.note(f"waiting for {', '.join(others)} (Ctrl-C leaves it for later)")
        await self._until_idle()

    async def _until_idle(self) -> None:
        """Stay for runs that are worked on, and for commands that work through this process."""
        while (self.reached.busy or self.reached.attended()) and not self.stop.is_heard:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.asked.wait(), LOOK_SECONDS)


async def unfinished_runs(caller: Caller) -> list[RunView]:
    """Return the runs that have not ended, the oldest first."""
    return list(reversed(await list_items(caller, runs.LIST, runs.ListRuns(unfinished=True))))


def _stopped(run_id: RunId, options: str) -> str:
    """What to do when the process that executed a run has gone."""
    return (
        f"treadle: the process that executed {run_id} has stopped. The run is recorded, and continues when "
        f"`treadle serve` or another command opens the home. Follow it: treadle runs events {run_id} --follow. "
        f"Continue it now: treadle runs resume {run_id}{options}"
    )


def _asks(event: Event) -> bool:
    """Whether somebody must answer: what the run itself asks, or one under it."""
    waits = isinstance(event.data, RunWaiting) and event.data.reason in FOR_AN_ANSWER
    return waits or (isinstance(event.data, AgentWaiting) and event.data.reason in FOR_AN_ANSWER)


def _taken_up(unfinished: Sequence[RunView]) -> list[RunId]:
    """The runs among these, oldest first, that go on by themselves: not parked, nor behind one that is."""
    held: set[str] = set()
    taken: list[RunId] = []
    for run in unfinished:
        if run.waiting_for in PARKED:
            held.add(run.session_id)
        elif run.session_id not in held:
            taken.append(run.run_id)
    return taken
