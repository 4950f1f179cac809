"""Tool calls: checked, run side by side, each ending in exactly one event."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from treadle.core.decide import OUTCOME_UNKNOWN
from treadle.core.ledger import Call
from treadle.core.state import RunState
from treadle.domain.events import (
    CallErrorKind,
    EventData,
    ToolCallEnd,
    ToolCallError,
    ToolCallProgress,
    ToolCallStart,
)
from treadle.domain.messages import sendable
from treadle.engine.deps import Deps
from treadle.engine.interruption import Interruption
from treadle.engine.ownership import Log
from treadle.ports.tool import InvalidArguments, Tool, ToolContext

AFTER_AN_ERROR = "Do not make up a result: say that it failed, or try another way."


class Ready(Struct, frozen=True):
    """A call that may run, with its arguments decoded."""

    call: Call
    tool: Tool
    arguments: Any
    start: ToolCallStart


def prepare(calls: tuple[Call, ...], log: Log, deps: Deps) -> tuple[list[Ready], list[EventData]]:
    """Decode the arguments of each call; what cannot run has its result at once."""
    ready: list[Ready] = []
    refused: list[EventData] = []
    for call in calls:
        tool = deps.tools.find(call.name)
        if tool is None:
            text = f"The tool `{call.name}` is not to be had any more."
            refused.append(ToolCallError(call.call_id, call.name, "failed", text))
            continue
        try:
            arguments = tool.parse(call.use.arguments)
        except InvalidArguments as error:
            text = f"`{call.name}` was not run: {error}"
            refused.append(ToolCallError(call.call_id, call.name, "invalid_arguments", text))
        except Exception as raised:
            refused.append(ToolCallError(call.call_id, call.name, "failed", _describe(call.name, raised)))
        else:
            key = f"{log.origin.run_id}/{call.call_id}"
            start = ToolCallStart(call.call_id, call.name, call.use.arguments, key, call.attempts + 1)
            ready.append(Ready(call, tool, arguments, start))
    return ready, refused


async def run_tools(ready: list[Ready], log: Log, deps: Deps) -> None:
    """Run the calls side by side and record how each ended, as it ends."""
    if not ready:
        return
    running = {item.call.call_id: Running(item, log, deps) for item in ready}
    work = [_run(call, running, log) for call in running.values()]
    together = work[0] if len(work) == 1 else _together(work)
    await log.unless(_calls_unwanted, together, until=log.state.deadline)
    log.record(*(_stopped(call.item, log.state) for call in running.values()))


async def _run(call: "Running", running: dict[str, "Running"], log: Log) -> None:
    ended = await call.to_its_end()
    del running[call.item.call.call_id]
    log.record(ended)
    if running:
        await log.flush()  # the last one's end goes with whatever is decided next


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of it side by side. Nothing is left running when this returns or raises."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _calls_unwanted(state: RunState) -> bool:
    return state.cancelled is not None or state.interrupted is not None


class Running:
    """One call while it runs."""

    __slots__ = ("_began", "_clock", "_log", "_loop", "_shown", "_timeout", "_timers", "item")

    def __init__(self, item: Ready, log: Log, deps: Deps) -> None:
        self.item = item
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._clock = deps.clock
        self._timers = deps.timers
        self._began = deps.clock.monotonic()
        self._timeout = _timeout(item, deps)
        self._shown = 0

    async def to_its_end(self) -> EventData:
        """Run the tool, within its time; whatever becomes of it is an event."""
        call, origin = self.item.call, self._log.origin
        context = ToolContext(
            origin.run_id, origin.session_id, call.call_id, self.item.start.idempotency_key, self._progress
        )
        limit = Interruption(self._timers, None if self._timeout is None else self._time_left)
        try:
            content = await self.item.tool.run(self.item.arguments, context)
        except (Exception, SystemExit, asyncio.CancelledError) as raised:  # one that exits must not take us with it
            if limit.take_back():
                return self._error(
                    "timeout", f"`{call.name}` did not end within {self._timeout:g} s and was stopped."
                )
            if isinstance(raised, asyncio.CancelledError) and not limit.from_within():
                raise
            return self._error("failed", _describe(call.name, raised))
        else:
            return ToolCallEnd(call.call_id, call.name, sendable(content), self._elapsed_ms())
        finally:
            limit.over()

    def _time_left(self) -> float:
        return self._began + (self._timeout or 0.0) - self._clock.monotonic()

    def _elapsed_ms(self) -> int:
        return round((self._clock.monotonic() - self._began) * 1000)

    def _error(self, kind: CallErrorKind, text: str) -> ToolCallError:
        call = self.item.call
        return ToolCallError(
            call.call_id, call.name, kind, f"{sendable(text)} {AFTER_AN_ERROR}", self._elapsed_ms()
        )

    def _progress(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._show, sendable(text))  # a tool may run in a thread

    def _show(self, text: str) -> None:
        call = self.item.call
        self._log.live(ToolCallProgress(call.started, call.call_id, self._shown, text), call.started)
        self._shown += len(text)


def _timeout(item: Ready, deps: Deps) -> float | None:
    declared = item.tool.spec.timeout
    return (deps.timeouts.default if declared is None else declared) or None


def _describe(name: str, raised: BaseException) -> str:
    return f"`{name}` failed: {type(raised).__name__}: {raised}."


def _stopped(item: Ready, state: RunState) -> ToolCallError:
    if state.cancelled is not None:
        kind, why = "cancelled", "The run was cancelled."
    elif state.interrupted is not None:
        kind, why = "interrupted", "It was interrupted."
    else:
        kind, why = "interrupted", "The deadline passed."
    again = "It may be run again." if item.tool.spec.repeatable else OUTCOME_UNKNOWN
    return ToolCallError(item.call.call_id, item.call.name, kind, f"{why} {again}")
