"""What a run waits for: the end of it, or people, or something that the engine lacks."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct

from treadle.api.result import OpenQuestion
from treadle.domain.envelope import Origin
from treadle.domain.errors import RunUnavailable
from treadle.domain.events import (
    ApprovalDecided,
    CancelRequested,
    ClarifyAnswered,
    ClientResult,
    MessageSteered,
    RunEnd,
    RunInterrupted,
    RunWaiting,
)
from treadle.domain.ids import RunId
from treadle.operations import approvals
from treadle.operations.approvals import ApprovalView
from treadle.operations.operation import LocalCaller
from treadle.operations.runs import OpenCall, make_client_call
from treadle.ports.journal import RunFilter, RunRecord

CONTINUES = (ApprovalDecided, ClarifyAnswered, ClientResult, CancelRequested, RunInterrupted)
"""What a run that waits for people or for its client is continued by."""
RECENT_EVENTS = 50


class WaitingRun(Struct, frozen=True):
    """A run that waits for people, or for results of its client."""

    origin: Origin
    approvals: tuple[ApprovalView, ...]
    questions: tuple[OpenQuestion, ...]
    client_calls: tuple[OpenCall, ...] = ()


class Pauses:
    """Finds what the runs of one engine wait for, with the runs below them."""

    def __init__(self, caller: LocalCaller, try_again: Callable[[RunId], Awaitable[bool]]) -> None:
        self._caller = caller
        self._service = caller.context.service
        self._try_again = try_again
        self._now = caller.context.now

    async def find(self, run_id: RunId) -> tuple[Origin, RunEnd] | WaitingRun | None:
        """Return the end of the run, or what it waits for if it waits for people."""
        return await self._find(await self._service.run(run_id))

    async def wait_for_change(self, run: WaitingRun) -> None:
        """Return when the run waits for something else, or has ended."""
        run_id = run.origin.run_id

        async def check() -> bool | None:
            return True if await self.find(run_id) != run else None

        await self._service.wait_for_pause(run_id, check)

    async def wait(self, run_id: RunId) -> tuple[Origin, RunEnd] | WaitingRun:
        """Wait until the run has ended or waits for people. Raise RunUnavailable if it waits for something that
        this engine lacks."""

        while True:
            found = await self._service.wait_for_pause(run_id, partial(self.find, run_id))
            if isinstance(found, WaitingRun):
                return found
            origin, pause = found
            if isinstance(pause, RunEnd):
                return origin, pause

    async def _find(self, record: RunRecord) -> tuple[Origin, RunEnd] | WaitingRun | None:
        if record.outcome is not None:
            return await self._service.wait(record.origin.run_id)
        requests: list[ApprovalView] = []
        questions: list[OpenQuestion] = []
        for member in await self._list_waiting(record):
            run_id = member.origin.run_id
            match member.waiting_for:
                case "approval":
                    page = await self._caller.call(approvals.LIST, approvals.ListApprovals(run_id))
                    requests += page.items
                case "answer":
                    asked = await self._service.questions(run_id)
                    questions += [OpenQuestion(run_id, each.call_id, each.question, each.options) for each in asked]
                case "unavailable":
                    await self._recheck(member)
                case _:
                    pass
        calls = tuple(map(make_client_call, await self._service.client_calls.list_open(record)))
        if requests or questions or calls:
            return WaitingRun(record.origin, tuple(requests), tuple(questions), calls)
        return None

    async def _list_waiting(self, record: RunRecord) -> Sequence[RunRecord]:
        """Return those of the run and of the runs below it that wait."""
        if record.status != "waiting" or await self._will_continue(record):
            return ()
        if record.waiting_for != "child":
            return (record,)
        below = await self._service.runs(RunFilter(parent_run_id=record.origin.run_id, unfinished=True), limit=100)
        return [member for child in below for member in await self._list_waiting(child)]

    async def _will_continue(self, record: RunRecord) -> bool:
        """Return whether what the run waits for has come, and it has only not been claimed yet."""
        if record.waiting_for != "unavailable" and record.wake_at is not None and record.wake_at <= self._now():
            return True
        after = max(0, record.sequence - RECENT_EVENTS)
        for event in reversed(await self._service.page(record.origin.run_id, after, RECENT_EVENTS)):
            if isinstance(event.data, RunWaiting):
                return False
            if isinstance(event.data, CONTINUES) or (
                isinstance(event.data, MessageSteered) and event.data.mode == "interrupt"
            ):
                return True
        return False

    async def _recheck(self, record: RunRecord) -> None:
        """Let the run look again for what it lacked. Raise RunUnavailable if it is still missing."""
        run_id = record.origin.run_id
        if await self._try_again(run_id):
            return
        [*_, last] = [event.data async for event in self._service.read_stored(run_id)]
        detail = last.detail if isinstance(last, RunWaiting) else "Something that it needs is missing."
        name = f"{run_id} ({record.agent})"
        raise RunUnavailable(f"{name} cannot continue in this engine. {detail} Then wait for it again.")
