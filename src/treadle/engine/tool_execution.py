"""Tool calls while they run: side by side, within their time, each ending in exactly one result."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.core.state import RunState
from treadle.core.tools.plan import OUTCOME_UNKNOWN
from treadle.domain.events import (
    CallErrorKind,
    EventData,
    SecretDenied,
    SecretUsed,
    ToolCallError,
    ToolCallProgress,
)
from treadle.domain.messages import sendable
from treadle.domain.secret_refs import filled, names_in
from treadle.engine.deps import EngineDeps
from treadle.engine.interruption import Interruption
from treadle.engine.owned_run import OwnedRun
from treadle.engine.tool_preparation import ReadyCall, must_stop_calls
from treadle.engine.tool_results import finish_call
from treadle.ports.memory import Recall
from treadle.ports.tool import Observation, ToolContext, ToolError
from treadle.ports.vault import SecretRefused, TextStream, VaultError

logger = logging.getLogger(__name__)


async def run_tools(ready: list[ReadyCall], log: OwnedRun, deps: EngineDeps) -> None:
    """Run the calls side by side and record how each ended, as it ends."""
    if not ready:
        return
    running = {item.call.call_id: RunningCall(item, log, deps) for item in ready}
    work = [_run(call, running, log) for call in running.values()]
    together = work[0] if len(work) == 1 else _run_together(work)
    await log.unless(must_stop_calls, together, until=log.state.deadline)
    log.record(*(_make_stopped_error(call.item, log.state) for call in running.values()))


async def _run(call: "RunningCall", running: dict[str, "RunningCall"], log: OwnedRun) -> None:
    ended = await call.to_its_end()
    del running[call.item.call.call_id]
    log.record(*ended)
    if running:
        await log.flush()  # the last one's end goes with whatever is decided next


async def _run_together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """All of it side by side. Nothing is left running when this returns or raises."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class RunningCall:
    """One call while it runs."""

    __slots__ = ("_began", "_clock", "_deps", "_hidden", "_log", "_loop", "_shown", "_timeout", "item")

    def __init__(self, item: ReadyCall, log: OwnedRun, deps: EngineDeps) -> None:
        self.item = item
        self._log = log
        self._deps = deps
        self._loop = asyncio.get_running_loop()
        self._clock = deps.clock
        self._began = deps.clock.monotonic()
        self._timeout = _timeout(item, deps)
        self._shown = 0
        self._hidden: TextStream | None = None
        """What it shows, with the secrets taken out; made when it shows something first."""

    async def to_its_end(self) -> tuple[EventData, ...]:
        """Run the tool, within its time; whatever becomes of it is events, the last of which is its result."""
        limit = Interruption(self._deps.timers, None if self._timeout is None else self._time_left)
        name = self.item.call.name
        kind: CallErrorKind = "failed"
        try:
            came = _check_result(await self.item.tool.run(self._arguments(), self._context()))
        except (ToolError, SecretRefused) as error:
            came = Observation(f"`{name}` failed: {error}", is_error=True)
        except VaultError as error:
            logger.warning("%s was not run: %s", name, error)
            came = Observation(f"`{name}` was not run: the vault cannot be used now. Tell the user.", is_error=True)
        except (Exception, SystemExit, asyncio.CancelledError) as raised:  # one that exits must not take us with it
            if limit.take_back():
                kind = "timeout"
                came = Observation(
                    f"`{name}` did not end within {self._timeout:g} s and was stopped.", is_error=True
                )
            elif isinstance(raised, asyncio.CancelledError) and not limit.from_within():
                raise
            else:
                came = Observation(f"`{name}` failed: {type(raised).__name__}: {raised}.", is_error=True)
        finally:
            limit.over()
        return await finish_call(self.item, came, self._elapsed_ms(), self._log, self._deps, kind)

    def _context(self) -> ToolContext:
        origin, start, agent = self._log.origin, self.item.start, self._log.state.agent
        context = ToolContext(
            origin.run_id,
            origin.session_id,
            start.call_id,
            start.idempotency_key,
            self._progress,
            agent.name,
            user=self._log.state.owner,
        )
        needs = self.item.tool.spec.needs
        if not needs:
            return context
        return msgspec.structs.replace(
            context,
            workspace=self._workspace() if "workspace" in needs else context.workspace,
            sandbox=agent.confinement,
            secrets=self._secrets() if "secrets" in needs else {},
            hidden=self._deps.hidden,
            approved=self.item.approved,
            hide=self._hiding(),
            report=self._log.record,
            recall=partial(self._deps.results.read, origin.session_id),
            search_memory=self._search_memory,
            new_memory_id=partial(self._deps.ids, "mem"),
            load_skill=partial(self._deps.surroundings.load, agent),
        )

    def _workspace(self) -> Path:
        """The folder that it works in. A child's was inside its parent's when it began, and must be there still."""
        state = self._log.state
        folder = self._deps.workspace(state.agent)
        if state.lineage is not None and folder.resolve() != folder.absolute():
            raise ToolError(f"the folder {folder} leads elsewhere by now. Tell whoever asked you.")
        return folder

    async def _search_memory(self, text: str, limit: int) -> Recall:
        """What the agent remembers. That an embedder failed is put on record."""
        state = self._log.state
        recall = await self._deps.memories.recall(state.memories, text, limit, state.agent.memory.embedder)
        if recall.degraded is not None:
            self._log.record(recall.degraded)
        return recall

    def _hiding(self) -> Callable[[str], str]:
        """The redactor of now: a tool may call it from a thread."""
        redactor = self._deps.vault.redactor
        return lambda text: redactor.redact(text).text

    def _arguments(self) -> Any:
        """The arguments, with the values of secrets in the place of their handles."""
        text = self.item.start.arguments
        if not names_in(text):
            return self.item.arguments
        return self.item.tool.parse(filled(text, self._reveal))

    def _reveal(self, secret: str) -> str:
        call = self.item.call
        try:
            tool = self.item.tool.spec.known_as
            [value, *_] = [self._deps.vault.reveal(secret, name, tool) for name in self._grantees()]
        except SecretRefused as error:
            self._log.record(SecretDenied(secret, call.name, call.call_id, error.reason))
            raise
        self._log.record(SecretUsed(secret, call.name, call.call_id))
        return value

    def _secrets(self) -> dict[str, str]:
        call = self.item.call
        tool = self.item.tool.spec.known_as
        first, *others = [self._deps.vault.granted(name, tool) for name in self._grantees()]
        granted = {name: first[name] for name in first if all(name in other for other in others)}
        self._log.record(*(SecretUsed(name, call.name, call.call_id) for name in granted))
        return granted

    def _grantees(self) -> tuple[str, ...]:
        """Who must have been granted a secret: the agent, and all those above it."""
        state = self._log.state
        return (state.agent.name,) if state.lineage is None else (state.agent.name, *state.lineage.agents)

    def _time_left(self) -> float:
        return self._began + (self._timeout or 0.0) - self._clock.monotonic()

    def _elapsed_ms(self) -> int:
        return round((self._clock.monotonic() - self._began) * 1000)

    def _progress(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._show, sendable(text))  # a tool may run in a thread

    def _show(self, text: str) -> None:
        call = self.item.call
        if self._hidden is None:
            self._hidden = self._deps.vault.redactor.stream()
        text = self._hidden.feed(text)
        self._log.live(ToolCallProgress(call.started, call.call_id, self._shown, text), call.started)
        self._shown += len(text)


def _check_result(result: Any) -> Observation:
    """What a tool gave back. It may be anybody's, and unchecked. Raises TypeError."""
    if isinstance(result, str):
        return Observation(result)
    if not isinstance(result, Observation):
        raise TypeError(f"it returned {type(result).__name__}, not text or an Observation")
    content, code = cast("Any", result.content), cast("Any", result.exit_code)
    if not isinstance(content, str) or not isinstance(code, int | None):
        raise TypeError("it returned an Observation whose content is not text or whose exit code is no number")
    return result


def _timeout(item: ReadyCall, deps: EngineDeps) -> float | None:
    declared = item.tool.spec.timeout
    return (deps.timeouts.default if declared is None else declared) or None


def _make_stopped_error(item: ReadyCall, state: RunState) -> ToolCallError:
    if state.cancelled is not None:
        kind, why = "cancelled", "The run was cancelled."
    elif state.interrupted is not None:
        kind, why = "interrupted", "It was interrupted."
    else:
        kind, why = "interrupted", "The deadline passed."
    again = "It may be run again." if item.tool.spec.repeatable else OUTCOME_UNKNOWN
    return ToolCallError(item.call.call_id, item.call.name, kind, f"{why} {again}")
