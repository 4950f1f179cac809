"""Groups of tools that are selected, renamed and wrapped together. Each change returns a new set."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import CallEnvironment, Concern, Observation, Subjects, Tool, ToolContext, ToolError

Proceed = Callable[[Any], Awaitable[str | Observation]]
"""Runs the wrapped tool with these arguments."""


class ToolWrapper(Protocol):
    async def __call__(
        self, spec: ToolSpec, arguments: Any, context: ToolContext, proceed: Proceed
    ) -> str | Observation:
        """Run a tool or replace it, with code before, after or around it."""
        ...


class Toolset:
    """A named group of tools. An agent file refers to it as `@name`.

    For example:

        @treadle.tool
        def add(a: float, b: float) -> float:
            return a + b


        numbers = treadle.Toolset("numbers", [add])
        agent = treadle.Agent(name="helper", model="provider/model-id", tools=[numbers.prefixed("math_")])
    """

    def __init__(self, name: str, tools: Iterable[Tool]) -> None:
        self.name = name
        self._tools = tuple(tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([tool.spec.name for tool in self._tools])

    def only(self, *globs: str) -> "Toolset":
        """Return the tools whose names match."""
        return Toolset(self.name, [tool for tool in self._tools if _matches(tool, globs)])

    def without(self, *globs: str) -> "Toolset":
        return Toolset(self.name, [tool for tool in self._tools if not _matches(tool, globs)])

    def prefixed(self, prefix: str) -> "Toolset":
        """Return the same tools under longer names, to avoid clashes between sets."""
        return Toolset(self.name, [_RenamedTool(tool, f"{prefix}{tool.spec.name}") for tool in self._tools])

    def wrapped(self, *wrappers: ToolWrapper) -> "Toolset":
        """Return the tools inside these wrappers; the first is the outermost."""
        return Toolset(self.name, [wrap(tool, *wrappers) for tool in self._tools])


def wrap(tool: Tool, *wrappers: ToolWrapper) -> Tool:
    """Return the tool inside these wrappers; the first is the outermost."""
    for wrapper in reversed(wrappers):
        tool = _WrappedTool(tool, wrapper)
    return tool


class ToolDecorator:
    """Forwards everything to another tool. Subclasses override a part."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def parse(self, arguments: str) -> Any:
        return self._tool.parse(arguments)

    def subjects(self, arguments: Any) -> Subjects:
        return self._tool.subjects(arguments)

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        assess = getattr(self._tool, "assess", None)
        return None if assess is None else await assess(arguments, scene)

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        find_fault = getattr(self._tool, "find_fault", None)
        return None if find_fault is None else await find_fault(arguments, scene)

    async def take_fingerprints(self, arguments: Any, scene: CallEnvironment) -> tuple[FileFingerprint, ...]:
        take = getattr(self._tool, "take_fingerprints", None)
        return () if take is None else await take(arguments, scene)

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        return await self._tool.run(arguments, context)


class CheckedTool(ToolDecorator):
    """A tool with a check of its arguments, which raises ToolError before an approval would be requested."""

    def __init__(self, tool: Tool, check: Callable[[Any], object]) -> None:
        super().__init__(tool)
        self._check = check

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        try:
            self._check(arguments)
        except ToolError as error:
            return str(error)
        return await super().find_fault(arguments, scene)


class _RenamedTool(ToolDecorator):
    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(tool)
        self._spec = msgspec.structs.replace(tool.spec, name=name)

    @property
    def spec(self) -> ToolSpec:
        return self._spec


class _WrappedTool(ToolDecorator):
    def __init__(self, tool: Tool, wrapper: ToolWrapper) -> None:
        super().__init__(tool)
        self._wrapper = wrapper

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        async def proceed(changed: Any) -> str | Observation:
            return await self._tool.run(changed, context)

        return await self._wrapper(self._tool.spec, arguments, context, proceed)


def _matches(tool: Tool, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool.spec.name, glob) for glob in globs)
