"""Tools that bring again what they brought. Where this engine knows them they are asked for their arguments and for
what rules see in them; they are never run."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from treadle.core.tools.plan import AFTER_A_DENIAL
from treadle.domain import events as e
from treadle.domain.errors import UsageError
from treadle.domain.messages import ToolUse
from treadle.domain.tools import ToolSpec
from treadle.engine.tool_preparation import NO_REVIEWER
from treadle.engine.tool_results import AFTER_AN_ERROR
from treadle.ports.tool import (
    PRIVATE_PREFIX,
    UNCONFINED_PREFIX,
    CallEnvironment,
    Concern,
    InvalidArguments,
    Observation,
    Subjects,
    Tool,
    Toolbox,
    ToolContext,
)
from treadle.replay.script import Script
from treadle.replay.sentence_facts import whole_of

REPORTED = (e.ProcessKilled, e.SandboxDenied, e.MemorySaved, e.JournalWritten, e.MemoryDegraded)
"""What tools put on record beside their results."""
_RAISED = "` failed: "


class UnderWay:
    """A call that a replay has begun."""

    def __init__(self, context: ToolContext, script: Script) -> None:
        self.call_id = context.call_id
        self.context = context
        self.task = asyncio.current_task()
        self.began = script.monotonic
        self.result: asyncio.Future[Observation] = asyncio.get_running_loop().create_future()


class RecordedTools:
    """Implements `ports.tool.Toolbox`: the tools that the run began with."""

    def __init__(self, script: Script, known: Toolbox) -> None:
        self.under_way: dict[str, UnderWay] = {}
        self.on_begun: Callable[[str], None] = lambda call_id: None
        self.guessed: set[str] = set()
        """Tools that nobody here knows, and of which a rule had to be told what they would do."""
        start = next((event.data for event in script.events if isinstance(event.data, e.RunStart)), None)
        specs: Sequence[ToolSpec] = () if start is None else start.tools
        self._tools: dict[str, Tool] = {
            spec.name: RecordedTool(spec, known.find(spec.name), script, self) for spec in specs
        }
        self._script = script
        self._started = (
            0 if start is None else next(index for index, event in enumerate(script.events) if event.data is start)
        )

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def select(self, allowlist: Sequence[str]) -> tuple[Tool, ...]:
        """Those of the run, when it starts; later those of a run under it, with those that it was not given."""
        if self._script.committed <= self._started:
            return tuple(self._tools.values())
        for name in allowlist:
            if name not in self._tools and (why := self._script.why_nothing_was_begun(name)) is not None:
                raise UsageError(why)
        spawn = self._script.begins()
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
        self._raise_again(arguments)
        if self._known is not None:
            return self._known.parse(arguments)
        decoded = msgspec.json.decode(arguments or "{}")
        return (
            SimpleNamespace(**cast("dict[str, Any]", decoded)) if isinstance(decoded, dict) else SimpleNamespace()
        )

    def _raise_again(self, arguments: str) -> None:
        """What was wrong with the arguments then, for a tool that nobody here knows."""
        if self._known is not None:
            return
        for data in self._script.clearing():
            if isinstance(data, e.ToolCallStart | e.ApprovalRequested) and data.name == self.spec.name:
                return
            if isinstance(data, e.ToolCallError) and self._asked(data.call_id) == arguments:
                if data.kind == "invalid_arguments":
                    raise InvalidArguments(data.content.partition("` was not run: ")[2])
                if data.kind == "failed" and _RAISED in data.content:
                    name, _, told = data.content.partition(_RAISED)[2].partition(": ")
                    raise type(name, (Exception,), {})(told.removesuffix("."))

    def _asked(self, call_id: str) -> str | None:
        """The arguments that the model wrote for a call of this tool."""
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
        for data in self._script.clearing():
            if isinstance(data, e.ApprovalRequested) and data.name == self.spec.name:
                return Subjects(texts, pattern=data.pattern)
        return Subjects(texts, pattern="*")

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        """What the tool found on the machine then, as far as the journal says: it asked for an approval with a
        reason, or was denied with it."""
        for data in self._script.clearing():
            if isinstance(data, e.ToolCallStart | e.ApprovalRequested | e.ToolCallError) and (
                data.call_id == scene.call_id
            ):
                return _concern_in(data)
        return None

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        call = UnderWay(context, self._script)
        self._box.under_way[call.call_id] = call
        self._box.on_begun(call.call_id)
        try:
            return await call.result
        finally:
            self._box.under_way.pop(call.call_id, None)


def _concern_in(data: e.ToolCallStart | e.ApprovalRequested | e.ToolCallError) -> Concern | None:
    match data:
        case e.ApprovalRequested():
            reason = data.reason
        case e.ToolCallError(kind="denied"):
            reason = data.content.partition(f"{NO_REVIEWER} (")[2].removesuffix(f") {AFTER_A_DENIAL}")
        case _:
            return None
    if reason.startswith(PRIVATE_PREFIX):
        return Concern("private", reason)
    return Concern("unconfined", reason) if reason.startswith(UNCONFINED_PREFIX) else None


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


def brought(outcome: e.ToolCallEnd | e.ToolCallError | e.HookBlocked, arguments: str) -> Observation:
    """What a call must have brought, that ended so."""
    if isinstance(outcome, e.HookBlocked):
        return Observation("")
    content = outcome.content
    if isinstance(outcome, e.ToolCallError):
        content = content.removesuffix(f" {AFTER_AN_ERROR}")
    if outcome.truncated:
        content = whole_of(content)
    content = content.removeprefix(f"[a person had it run with other arguments: {arguments}]\n")
    return Observation(content, outcome.exit_code, isinstance(outcome, e.ToolCallError))


def was_stopped(outcome: e.ToolCallEnd | e.ToolCallError | e.HookBlocked) -> bool:
    """Whether a call was not let come to its end."""
    return isinstance(outcome, e.ToolCallError) and outcome.kind in ("interrupted", "cancelled")
