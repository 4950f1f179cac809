"""Execution of tool calls: concurrently, each within its timeout, each with exactly one result."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.core.state import RunState
from treadle.core.tools.plan import STARTED_BUT_UNKNOWN
from treadle.core.tools.search import find_hidden_tools
from treadle.domain.events import EventData, SecretDenied, SecretUsed, ToolCallError, ToolCallProgress
from treadle.domain.excerpts import place_excerpt
from treadle.domain.messages import Image, make_sendable
from treadle.domain.secret_refs import find_secret_names, resolve_secret_refs
from treadle.engine.call_failures import CallFailure, describe_exception
from treadle.engine.deps import ToolDeps
from treadle.engine.file_watch import open_recorder, watch_files
from treadle.engine.interruption import Interruption
from treadle.engine.owned_run import OwnedRun
from treadle.engine.questions import ask_during_call
from treadle.engine.stand_ins import StandInTool
from treadle.engine.text_blocks import LiveOutput
from treadle.engine.tool_preparation import ReadyCall, must_stop_calls
from treadle.engine.tool_results import PLAIN_FAILURE, finish_call
from treadle.ports.memory import Recall
from treadle.ports.tool import Observation, ToolContext, ToolError, ToolTimeout
from treadle.ports.vault import SecretRefused, TextStream, VaultError

logger = logging.getLogger(__name__)


async def run_tools(ready: list[ReadyCall], run: OwnedRun, deps: ToolDeps) -> None:
    """Run the calls concurrently and record each result as its call ends."""
    if not ready:
        return
    running = {item.call.call_id: RunningCall(item, run, deps) for item in ready}
    work = [_run(call, running, run) for call in running.values()]
    together = work[0] if len(work) == 1 else _run_together(work)
    await run.run_unless(must_stop_calls, together, until=run.state.deadline)
    run.record(*(_make_stopped_error(call.item, run.state) for call in running.values()))


async def _run(call: "RunningCall", running: dict[str, "RunningCall"], run: OwnedRun) -> None:
    ended = await call.run_to_end()
    del running[call.item.call.call_id]
    run.record(*ended)
    if running:
        run.flush_soon()  # the last result is committed with the next decision


async def _run_together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently. None is left running when this returns or raises."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


ANONYMOUS = "memory is off: the program that sent the message did not name its user. Continue without memory."


class RunningCall:
    """One call in progress."""

    __slots__ = (
        "_asking_since",
        "_clock",
        "_deps",
        "_loop",
        "_output",
        "_questions",
        "_redaction",
        "_run",
        "_started_at",
        "_timeout",
        "item",
    )

    def __init__(self, item: ReadyCall, run: OwnedRun, deps: ToolDeps) -> None:
        self.item = item
        self._run = run
        self._deps = deps
        self._loop = asyncio.get_running_loop()
        self._clock = run.worker.clock
        self._started_at = run.worker.clock.monotonic()
        self._timeout = _timeout(item, deps)
        self._output: LiveOutput | None = None
        """What it has printed so far; made when it first prints something."""
        self._questions = 0
        self._asking_since: float | None = None
        self._redaction: TextStream | None = None
        """Redacts the progress that the tool shows; made when it first shows some."""

    def _log_exception(self, raised: BaseException) -> None:
        """Log where a tool raised. The model is only told what."""
        told = self._run.worker.vault.redactor.redact("".join(traceback.format_exception(raised))).text
        logger.info("tool %s of run %s raised:\n%s", self.item.call.name, self._run.origin.run_id, told.rstrip())

    async def run_to_end(self) -> tuple[EventData, ...]:
        """Run the tool within its timeout and return the events that end the call. The last one is its result.

        Its timeout does not run while the files of its folder are recorded."""
        async with watch_files(self.item, self._run, self._deps):
            self._started_at = self._clock.monotonic()
            return await self._run_to_end()

    async def _run_to_end(self) -> tuple[EventData, ...]:
        limit = Interruption(self._run.worker.timers, None if self._timeout is None else self._time_left)
        name, failure = self.item.call.name, PLAIN_FAILURE
        try:
            result = _check_result(await self.item.tool.run(self._resolve_arguments(), self._make_context()))
        except (ToolError, SecretRefused) as error:
            before, reason = f"`{name}` failed: ", str(error)
            cause = "tool_error" if isinstance(error, ToolError) else "secret_refused"
            kind = "timeout" if isinstance(error, ToolTimeout) else "failed"
            failure = CallFailure(kind, cause=cause, excerpt=place_excerpt(before, reason))
            result = Observation(before + reason, is_error=True)
        except VaultError as error:
            logger.warning("tool %s was not run: %s", name, error)
            failure = CallFailure(cause="vault_unavailable")
            result = Observation(
                f"`{name}` was not run: the vault cannot be used now. Tell the user.", is_error=True
            )
        except (
            Exception,
            SystemExit,
            asyncio.CancelledError,
        ) as raised:  # a tool that exits must not end the process
            if limit.undo():
                failure = CallFailure("timeout", limit=self._timeout)
                result = Observation(
                    f"`{name}` did not end within {self._timeout:g} s and was stopped.", is_error=True
                )
            elif isinstance(raised, asyncio.CancelledError) and not limit.is_internal():
                raise
            else:
                failure, text = describe_exception(name, raised)
                self._log_exception(raised)
                result = Observation(text, is_error=True)
        finally:
            limit.close()
            if self._output is not None:
                self._run.worker.hub.set_live_output(self._run.origin.run_id, self.item.call.call_id, None)
        return await finish_call(self.item, result, self._elapsed_ms(), self._run, self._deps, failure)

    def _make_context(self) -> ToolContext:
        origin, start, agent = self._run.origin, self.item.start, self._run.state.agent
        context = ToolContext(
            run_id=origin.run_id,
            session_id=origin.session_id,
            call_id=start.call_id,
            idempotency_key=start.idempotency_key,
            progress=self._report_progress,
            agent=agent.name,
            user=self._run.state.owner,
            deps=self._deps.program.find(origin.run_id),
        )
        needs = self.item.tool.spec.needs
        if not needs:
            return context
        if "memory" in needs and self._run.state.is_anonymous:
            raise ToolError(ANONYMOUS)
        return msgspec.structs.replace(
            context,
            workspace=self._workspace() if "workspace" in needs else context.workspace,
            sandbox=agent.confinement,
            secrets=self._read_secrets() if "secrets" in needs else {},
            hidden=self._deps.hidden,
            engine=self._deps.places,
            approved=self.item.approved,
            files=self.item.start.files,
            hide=self._make_redactor(),
            report=self._run.record,
            recall=partial(self._deps.results.read, origin.session_id),
            search_memory=self._search_memory,
            new_memory_id=partial(self._run.worker.ids, "mem"),
            load_skill=partial(self._deps.agent_context.load, agent),
            ask=self.ask,
            find_tools=partial(find_hidden_tools, self._run.state.tools),
            recorder=open_recorder(self.item, self._run, self._deps),
        )

    def _workspace(self) -> Path:
        """Return the agent's folder. Raise ToolError if a child run's folder no longer leads where it did at its
        start."""
        state = self._run.state
        folder = self._deps.workspace(state.agent)
        if state.lineage is not None and folder.resolve() != folder.absolute():
            raise ToolError(f"the folder {folder} is now a link to another place. Tell the user.")
        return folder

    async def _search_memory(self, text: str, limit: int) -> Recall:
        """Return what the agent remembers, and record it if an embedder failed."""
        state = self._run.state
        recall = await self._deps.memories.recall(state.memories, text, limit, state.agent.memory.embedder)
        if recall.degraded is not None:
            self._run.record(recall.degraded)
        return recall

    def _make_redactor(self) -> Callable[[str], str]:
        """Return a function that redacts text with the current secrets. A tool may call it from a thread."""
        redactor = self._run.worker.vault.redactor
        return lambda text: redactor.redact(text).text

    def _resolve_arguments(self) -> Any:
        """Return the arguments with the values of secrets in place of their references."""
        text = self.item.start.arguments
        if isinstance(self.item.tool, StandInTool) or not find_secret_names(text):
            return self.item.arguments
        return self.item.tool.parse(resolve_secret_refs(text, self._reveal))

    def _reveal(self, secret: str) -> str:
        call = self.item.call
        try:
            tool = self.item.tool.spec.name
            [value, *_] = [self._run.worker.vault.reveal(secret, name, tool) for name in self._list_grantees()]
        except SecretRefused as error:
            self._run.record(SecretDenied(secret, call.name, call.call_id, error.reason))
            raise
        self._run.record(SecretUsed(secret, call.name, call.call_id))
        return value

    def _read_secrets(self) -> dict[str, str]:
        call = self.item.call
        tool = self.item.tool.spec.name
        first, *others = [self._run.worker.vault.read_granted_secrets(name, tool) for name in self._list_grantees()]
        granted = {name: first[name] for name in first if all(name in other for other in others)}
        self._run.record(*(SecretUsed(name, call.name, call.call_id) for name in granted))
        return granted

    def _list_grantees(self) -> tuple[str, ...]:
        """Return the agents that must have been granted a secret: the run's own and those of all its ancestors."""
        state = self._run.state
        return (state.agent.name,) if state.lineage is None else (state.agent.name, *state.lineage.agents)

    async def ask(self, question: str, options: tuple[str, ...]) -> str | None:
        """Ask the user a question while the call is in progress. Its timeout does not run meanwhile."""
        self._questions += 1
        self._asking_since = self._clock.monotonic()
        try:
            return await ask_during_call(self._run, self.item.call, self._questions, question, options)
        finally:
            self._started_at += self._clock.monotonic() - self._asking_since
            self._asking_since = None

    def _time_left(self) -> float:
        if self._asking_since is not None:
            return self._timeout or 0.0
        return self._started_at + (self._timeout or 0.0) - self._clock.monotonic()

    def _elapsed_ms(self) -> int:
        return round((self._clock.monotonic() - self._started_at) * 1000)

    def _report_progress(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._show, make_sendable(text))  # a tool may run in a thread

    def _show(self, text: str) -> None:
        call = self.item.call
        if self._redaction is None:
            self._redaction = self._run.worker.vault.redactor.stream()
        text = self._redaction.feed(text)
        if self._output is None:
            self._output = LiveOutput(self._run.origin, call.started, call.call_id)
            self._run.worker.hub.set_live_output(self._run.origin.run_id, call.call_id, self._output)
        offset = self._output.length
        self._output.append(text)
        self._run.show_live(ToolCallProgress(call.started, call.call_id, offset, text), call.started)


def _check_result(result: Any) -> Observation:
    """Return a tool's result as an Observation. Raise TypeError if it is something else: tools may be unchecked."""
    if isinstance(result, str):
        return Observation(result)
    if not isinstance(result, Observation):
        raise TypeError(f"it returned {type(result).__name__}, not text or an Observation")
    content, code = cast("Any", result.content), cast("Any", result.exit_code)
    if not isinstance(content, str) or not isinstance(code, int | None):
        raise TypeError("it returned an Observation whose content is not text or whose exit code is not a number")
    images: Any = result.images
    if not isinstance(images, tuple) or not all(isinstance(image, Image) for image in cast("tuple[Any]", images)):
        raise TypeError("it returned an Observation whose images are not a tuple of images")
    return result


def _timeout(item: ReadyCall, deps: ToolDeps) -> float | None:
    declared = item.tool.spec.timeout
    return (deps.timeouts.default if declared is None else declared) or None


def _make_stopped_error(item: ReadyCall, state: RunState) -> ToolCallError:
    if state.cancelled is not None:
        kind, why = "cancelled", "The run was cancelled"
    elif state.interrupted is not None:
        kind, why = "interrupted", "It was interrupted"
    else:
        kind, why = "interrupted", "The deadline passed"
    again = ". It may be run again." if item.tool.spec.repeatable else f", {STARTED_BUT_UNKNOWN}"
    return ToolCallError(item.call.call_id, item.call.name, kind, f"{why}{again}")
