"""Clients of a simulated world, which run the tools that they brought: at once or late, once or twice, with one
result or two. And the invariants of what they deliver."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState
from treadle.domain.events import ClientCallRequested, ClientResult, ToolCallEnd, ToolCallError, ToolCallStart
from treadle.domain.ids import RunId
from treadle.domain.tools import ClientTool
from treadle.operations import client_calls
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller
from treadle.operations.runs import OneRun, OpenCall
from treadle.operations.service import LocalService
from treadle.testing.simulation.agents import CLIENT_WAIT_SECONDS
from treadle.testing.simulation.world import Violation, World

CLIENT_TOOLS = (ClientTool("fetch", "Fetch something from the client."), ClientTool("beep", "Make a sound."))
HABITS = ("once", "once", "once", "fail", "twice", "change", "race", "repeat", "late", "never", "meddle")
"""What a client does about a call."""

Answer = TypeVar("Answer")


class Somewhere(Protocol):
    """Runs something in a process that is alive, and again in another one if it dies meanwhile."""

    async def __call__(self, work: "Callable[[LocalService], Coroutine[Any, Any, Answer]]") -> Answer: ...


class Delivery(Struct, frozen=True):
    """A result that a client delivered, and the sequence that it was told; None: it was refused."""

    run_id: RunId
    call_id: str
    content: str
    sequence: int | None


class SimulatedClient:
    """Watches a run and runs the calls that wait for it."""

    def __init__(
        self, run_id: RunId, world: World, somewhere: Somewhere, meddle: Callable[[], Awaitable[None]]
    ) -> None:
        self._run_id = run_id
        self._world = world
        self._somewhere = somewhere
        self._meddle = meddle
        self._made = 0
        self._seen: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.deliveries: list[Delivery] = []

    async def serve(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._world.delay())
                for asked in await self._somewhere(self._list_calls):
                    if asked.call_id not in self._seen:
                        self._seen.add(asked.call_id)
                        self._tasks.append(asyncio.ensure_future(self._handle(asked)))
        finally:
            for task in self._tasks:
                task.cancel()

    def raise_error(self) -> None:
        """Raise what a delivery raised that it should not."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _list_calls(self, service: LocalService) -> Sequence[OpenCall]:
        caller = LocalCaller(Context(service=service))
        return (await caller.call(client_calls.LIST, OneRun(self._run_id))).items

    async def _handle(self, asked: OpenCall) -> None:
        await asyncio.sleep(self._world.delay())
        result, other = self._make_result(asked), self._make_result(asked)
        match self._world.chance.choice(HABITS):
            case "once":
                await self._deliver(asked, result)
            case "fail":
                await self._deliver(asked, result, is_error=True)
            case "twice":
                await self._deliver(asked, result)
                await self._deliver(asked, result)
            case "change":
                await self._deliver(asked, result)
                await self._deliver(asked, other)
            case "race":
                await asyncio.gather(self._deliver(asked, result), self._deliver(asked, other))
            case "repeat":
                await asyncio.gather(*(self._deliver(asked, result) for _ in range(3)))
            case "late":
                await asyncio.sleep(2 * CLIENT_WAIT_SECONDS * self._world.chance.random())
                await self._deliver(asked, result)
            case "meddle":
                await asyncio.gather(self._deliver(asked, result), self._interfere())
            case _:
                pass

    def _make_result(self, asked: OpenCall) -> str:
        self._made += 1
        return f"result {self._made} of {asked.call_id}"

    async def _interfere(self) -> None:
        with suppress(InvalidState):  # the run has ended
            await self._meddle()

    async def _deliver(self, asked: OpenCall, content: str, is_error: bool = False) -> None:
        request = client_calls.DeliverResult(self._run_id, asked.call_id, content, is_error)

        async def deliver(service: LocalService) -> int:
            return (await LocalCaller(Context(service=service)).call(client_calls.DELIVER, request)).sequence

        try:
            sequence = await self._somewhere(deliver)
        except InvalidState:
            sequence = None
        self.deliveries.append(Delivery(self._run_id, asked.call_id, content, sequence))


# ── Invariants ─────────────────────────────────────────────────────────────────────────────────────


def check_client_calls(run_id: RunId, events: Sequence[Event]) -> None:
    """Check that each call of a client's tool was asked once, has at most one result, and ends with that one."""
    asked: Counter[str] = Counter()
    results: dict[str, ClientResult] = {}
    for event in events:
        match event.data:
            case ClientCallRequested(call_id):
                asked[call_id] += 1
            case ClientResult(call_id) as result:
                if call_id in results or not asked[call_id]:
                    raise Violation(f"{run_id}: {call_id} was asked {asked[call_id]} times and has two results")
                results[call_id] = result
            case ToolCallStart(call_id) if asked[call_id]:
                raise Violation(f"{run_id}: {call_id} is the client's, and was started")
            case ToolCallEnd(call_id, content=content) | ToolCallError(call_id, content=content) if asked[call_id]:
                _check_end(run_id, event, results.get(call_id), content)
            case _:
                pass
    if asked and max(asked.values()) > 1:
        raise Violation(f"{run_id}: a call was asked twice: {asked}")


def _check_end(run_id: RunId, event: Event, result: ClientResult | None, content: str) -> None:
    match event.data:
        case ToolCallEnd():
            is_right = result is not None and not result.is_error and result.content == content
        case ToolCallError(kind="failed"):
            is_right = result is not None and result.is_error and content.startswith(result.content)
        case _:
            is_right = True  # it was skipped, or its time was over
    if not is_right:
        raise Violation(f"{run_id}: {event.data} ends a call of the client, whose result is {result}")


def check_deliveries(deliveries: Sequence[Delivery], journals: Sequence[Sequence[Event]]) -> None:
    """Check that the journal has each delivery that was acknowledged, where the client was told, and none that was
    refused, unless another client delivered the same."""
    by_run = {events[0].run_id: events for events in journals if events}
    known = {(each.run_id, each.call_id, each.content) for each in deliveries if each.sequence is not None}
    for each in deliveries:
        events = by_run[each.run_id]
        if each.sequence is not None:
            match events[each.sequence - 1].data:
                case ClientResult(call_id, content) if (call_id, content) == (each.call_id, each.content):
                    pass
                case other:
                    raise Violation(f"{each} was acknowledged, and the journal has {other}")
        elif (each.run_id, each.call_id, each.content) not in known and any(
            isinstance(event.data, ClientResult) and event.data.content == each.content for event in events
        ):
            raise Violation(f"{each} was refused, and is in the journal")
