"""Replays the tools. No tool is run. Tools that this engine knows decode their arguments for the rules."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.excerpts import take_excerpt
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.messages import ToolUse
from treadle.domain.tools import ToolSpec, strip_line
from treadle.ports.tool import (
    CallEnvironment,
    Concern,
    InvalidArguments,
    Observation,
    Subjects,
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
    ToolTimeout,
)
from treadle.ports.vault import VaultError
from treadle.replay.script import Script

REPORTED = (
    e.ProcessKilled, e.SandboxDenied, e.MemorySaved, e.JournalWritten, e.MemoryDegraded, e.McpConnected,
    e.McpDisconnected, e.McpFailed,
)  # fmt: skip
"""Events that tools record besides their results."""
CallOutcome = e.ToolCallEnd | e.ToolCallError | e.HookBlocked


class ReplayedCall:
    """A call in progress in a replay."""

    def __init__(self, context: ToolContext, script: Script) -> None:
        self.call_id = context.call_id
        self.context = context
        self.task = asyncio.current_task()
        self.began = script.monotonic
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Observation] = self._loop.create_future()
        self._question: asyncio.Task[str | None] | None = None

    def ask(self, recorded: e.ClarifyRequested) -> None:
        """Ask the question that the tool asked during the call. The answer is part of its recorded result."""
        self._question = self._loop.create_task(
            cast("Coroutine[Any, Any, str | None]", self.context.ask(recorded.question, recorded.options))
        )

    def close(self) -> None:
        if self._question is not None:
            self._question.cancel()


class RecordedTools:
    """Implements `ports.tool.Toolbox`: the tools that the run began with."""

    def __init__(self, script: Script, known: Toolbox) -> None:
        self.in_progress: dict[str, ReplayedCall] = {}
        self.on_started: Callable[[str], None] = lambda call_id: None
        self.guessed: set[str] = set()
        """Tools that this engine does not know and whose subjects had to be guessed for a rule."""
        start = next((event.data for event in script.events if isinstance(event.data, e.RunStart)), None)
        specs: Sequence[ToolSpec] = () if start is None else start.tools
        self._tools: dict[str, Tool] = {
            spec.name: RecordedTool(spec, known.find(spec.name), script, self)
            for spec in specs
            if spec.client is None
        }
        self._script = script
        self._started = (
            0 if start is None else next(index for index, event in enumerate(script.events) if event.data is start)
        )

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        return self._tools.get(name)

    def select(self, allowlist: Sequence[str], agent: AgentSpec | None = None) -> tuple[Tool, ...]:
        """Return the tools of the run when it starts, and later those of a child run, with the withheld ones."""
        if self._script.committed <= self._started:
            return tuple(self._tools.values())
        for name in allowlist:
            if name not in self._tools and (reason := self._script.explain_not_started(name)) is not None:
                raise UsageError(reason)
        spawn = self._script.next_child()
        withheld = [] if spawn is None else [ToolSpec(name, "", {}) for name in spawn.withheld]
        others = [RecordedTool(spec, None, self._script, self) for spec in withheld]
        return (*self._tools.values(), *others)


class RecordedTool:
    """Implements `ports.tool.Tool`."""

    def __init__(self, spec: ToolSpec, known: Tool | None, script: Script, box: RecordedTools) -> None:
        self.spec = spec
        self._known = known
        self._script = script
        self._box = box

    def parse(self, arguments: str) -> Any:
        self._raise_recorded_error(arguments)
        if self._known is not None:
            return self._known.parse(arguments)
        decoded = msgspec.json.decode(arguments or "{}")
        return (
            SimpleNamespace(**cast("dict[str, Any]", decoded)) if isinstance(decoded, dict) else SimpleNamespace()
        )

    def _raise_recorded_error(self, arguments: str) -> None:
        """Raise what decoding the arguments raised in the recorded call, if the tool is not known here."""
        if self._known is not None:
            return
        for data in self._script.list_decisions():
            if isinstance(data, e.ToolCallStart | e.ApprovalRequested) and data.name == self.spec.name:
                return
            if isinstance(data, e.ToolCallError) and self._find_written_arguments(data.call_id) == arguments:
                if data.kind == "invalid_arguments":
                    raise InvalidArguments(take_excerpt(data.content, data.excerpt))
                if data.cause == "raised":
                    raise _make_exception(data)

    def _find_written_arguments(self, call_id: str) -> str | None:
        """Return the arguments that the model wrote for a call of this tool."""
        for event in reversed(self._script.events[: self._script.committed]):
            if isinstance(event.data, e.LlmResponse):
                uses = [part for part in event.data.parts if isinstance(part, ToolUse)]
                return next((u.arguments for u in uses if (u.call_id, u.name) == (call_id, self.spec.name)), None)
        return None

    def subjects(self, arguments: Any) -> Subjects:
        if self._known is not None:
            return self._known.subjects(arguments)
        self._box.guessed.add(self.spec.name)
        texts = tuple(_texts(vars(arguments)))
        whole = strip_line(texts[0]) if len(texts) == 1 else None
        for data in self._script.list_decisions():
            if isinstance(data, e.ApprovalRequested) and data.name == self.spec.name:
                return Subjects(texts, pattern=data.pattern, whole=whole)
        return Subjects(texts, pattern="*", whole=whole)

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        """Return what the tool found on the machine, if the call needed an approval or was denied for it."""
        for data in self._script.list_decisions():
            if isinstance(data, e.ToolCallStart | e.ApprovalRequested | e.ToolCallError) and (
                data.call_id == scene.call_id
            ):
                return _find_concern(data)
        return None

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        """Return the fault that was found in the recorded call."""
        for data in self._script.list_decisions():
            if isinstance(data, e.ToolCallError) and data.call_id == scene.call_id and data.cause == "fault":
                return take_excerpt(data.content, data.excerpt)
        return None

    async def take_fingerprints(self, arguments: Any, scene: CallEnvironment) -> tuple[FileFingerprint, ...]:
        """Return what the files contained that the recorded call was to change."""
        for data in self._script.list_decisions():
            if isinstance(data, e.ToolCallStart | e.ApprovalRequested) and data.call_id == scene.call_id:
                return data.files
        return ()

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        call = ReplayedCall(context, self._script)
        self._box.in_progress[call.call_id] = call
        self._box.on_started(call.call_id)
        try:
            return await call.result
        finally:
            self._box.in_progress.pop(call.call_id, None)
            call.close()


def _find_concern(data: e.ToolCallStart | e.ApprovalRequested | e.ToolCallError) -> Concern | None:
    match data:
        case e.ApprovalRequested(concern="private" | "executed" | "unconfined" as kind):
            return Concern(kind, data.reason, data.places, is_recorded=True)
        case e.ToolCallError(concern="private" | "executed" | "unconfined" as kind):
            return Concern(kind, take_excerpt(data.content, data.excerpt))
        case _:
            return None


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in cast("dict[str, Any]", value).values() for text in _texts(item)]
        case list():
            return [text for item in cast("list[Any]", value) for text in _texts(item)]
        case _:
            return []


def set_result(call: ReplayedCall, outcome: CallOutcome) -> None:
    """End a call with the result, or the exception, that gives the recorded outcome."""
    match outcome:
        case e.HookBlocked():
            call.result.set_result(Observation(""))
        case e.ToolCallError(cause="raised"):
            call.result.set_exception(_make_exception(outcome))
        case e.ToolCallError(cause="tool_error"):
            kind = ToolTimeout if outcome.kind == "timeout" else ToolError
            call.result.set_exception(kind(take_excerpt(outcome.content, outcome.excerpt)))
        case e.ToolCallError(cause="vault_unavailable"):
            call.result.set_exception(VaultError("The vault cannot be opened."))
        case _:
            is_error = isinstance(outcome, e.ToolCallError)
            images = outcome.images if isinstance(outcome, e.ToolCallEnd) else ()
            call.result.set_result(Observation(_find_output(outcome), outcome.exit_code, is_error, images))


def _find_output(outcome: e.ToolCallEnd | e.ToolCallError) -> str:
    """Return the output of a tool. The part of a truncated one that is not recorded is filled up."""
    content, excerpt, truncation = outcome.content, outcome.excerpt, outcome.truncation
    if truncation is None:
        return take_excerpt(content, excerpt)
    shown = content if excerpt is None else content[: excerpt[1]]
    head, tail = shown[: truncation.head], shown[len(shown) - truncation.tail :]
    filler = "." * (truncation.length - len(head) - len(tail))
    return f"{head}{filler}{tail}"[0 if excerpt is None else excerpt[0] :]


def _make_exception(error: e.ToolCallError) -> Exception:
    """Return an exception of the recorded class, with the recorded message."""
    return type(error.exception, (Exception,), {})(take_excerpt(error.content, error.excerpt))


def was_stopped(outcome: CallOutcome) -> bool:
    """Return whether a call was stopped before its end."""
    return isinstance(outcome, e.ToolCallError) and outcome.kind in ("interrupted", "cancelled")
