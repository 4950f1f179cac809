"""The registry of the tools of a process: its own, and those of installed plugins."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.suggestions import find_closest
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Tool, ToolSource
from treadle.tools.entry_points import find_entry_points
from treadle.tools.toolset import Toolset

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGIN_GROUP = "treadle.tools"
"""The entry-point group of plugins. Each entry point is a Tool, a list of Tools or a Toolset."""
SET_PREFIX = "@"
"""The first character of the name of a set in an allowlist."""


class ToolRegistry:
    """Tools by name. Each name belongs to one tool."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._builtin: set[str] = set()
        """Names of the built-in tools, which other tools may replace."""
        self._sets: dict[str, tuple[str, ...]] = {}
        self._sources: list[ToolSource] = []
        self._internal: dict[str, Tool] = {}
        """Tools that the engine adds to a run, which no glob selects."""
        for tool in tools:
            self.add(tool)

    def add_plugins(self) -> None:
        """Import and register the tools of every installed plugin."""
        for plugin in find_entry_points(PLUGIN_GROUP):
            loaded = _load_plugin(plugin)
            if isinstance(loaded, Toolset):
                self.add_set(loaded)
            else:
                for tool in loaded:
                    self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register a tool. Raise UsageError if another tool has its name."""
        name = tool.spec.name
        if name in self._builtin:
            self._builtin.discard(name)
            self._tools[name] = tool
        elif self._tools.setdefault(name, tool) is not tool:
            raise UsageError(f"two tools are called `{name}`; give one of them another name")

    def add_builtin(self, tools: Iterable[Tool | Toolset]) -> None:
        """Register tools that others of the same name may replace."""
        for item in tools:
            if isinstance(item, Toolset):
                self._sets[item.name] = item.names
            for tool in item if isinstance(item, Toolset) else (item,):
                if self._tools.setdefault(tool.spec.name, tool) is tool:
                    self._builtin.add(tool.spec.name)

    def add_set(self, tools: Toolset) -> None:
        """Register a set with its tools. Raise UsageError if another set or tool has the same name."""
        if self._sets.setdefault(tools.name, tools.names) != tools.names:
            raise UsageError(f"two sets of tools are called `{tools.name}`; give one of them another name")
        for tool in tools:
            self.add(tool)

    def add_internal(self, tools: Iterable[Tool]) -> None:
        """Register tools that the engine adds to a run. A tool of the same name takes precedence."""
        self._internal |= {tool.spec.name: tool for tool in tools}

    def add_source(self, source: ToolSource) -> None:
        """Add tools that are looked up when they are needed. A tool of the registry itself comes first."""
        self._sources.append(source)

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        return self._tools.get(name) or self._find_by_alias(name) or self._find_in_sources(name, agent)

    def _find_in_sources(self, name: str, agent: AgentSpec | None) -> Tool | None:
        for source in self._sources:
            if (tool := source.find(name, agent)) is not None:
                return tool
        return self._internal.get(name)

    def _find_by_alias(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools.values() if name in tool.spec.aliases), None)

    def select(self, allowlist: Sequence[str], agent: AgentSpec | None = None) -> tuple[Tool, ...]:
        names = {name for entry in allowlist for name in self._match_entry(entry, agent)}
        found = [self.find(name, agent) for name in sorted(names)]
        return tuple(tool for tool in found if tool is not None)

    def _match_entry(self, entry: str, agent: AgentSpec | None) -> list[str]:
        """Return the tool names that one entry of an allowlist matches. A glob may match none."""
        if entry.startswith(SET_PREFIX) and (names := self._sets.get(entry.removeprefix(SET_PREFIX))) is not None:
            return list(names)
        if any(character in entry for character in "*?["):
            own = [
                name
                for name, tool in self._tools.items()
                if any(fnmatchcase(known, entry) for known in (name, *tool.spec.aliases))
            ]
            return [*own, *(name for source in self._sources for name in source.names(entry, agent))]
        if (tool := self.find(entry, agent)) is not None:
            return [tool.spec.name]
        for source in self._sources:
            if (reason := source.explain(entry, agent)) is not None:
                raise UsageError(reason)
        known = sorted([*self._tools, *(f"{SET_PREFIX}{name}" for name in self._sets)])
        near = find_closest(entry, known)
        meant = f"did you mean `{near}`?" if near else f"known tools: {', '.join(known) or 'none'}"
        raise UsageError(f"no tool is called `{entry}`; {meant}")


def _load_plugin(plugin: "EntryPoint") -> list[Tool] | Toolset:
    origin = f"plugin `{plugin.name}` ({plugin.value})"
    try:
        loaded: Any = plugin.load()
    except Exception as error:  # a plugin may raise anything while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{origin} cannot be loaded: {reason}. Fix it or uninstall it.") from error
    if isinstance(loaded, Toolset):
        return loaded
    tools = cast("list[Any]", loaded) if isinstance(loaded, list) else [loaded]
    for tool in tools:
        if not _is_tool(tool):
            raise UsageError(
                f"{origin} has a value of type {type(tool).__name__}, not a Tool; decorate it with @treadle.tool"
            )
    return tools


def _is_tool(value: Any) -> TypeGuard[Tool]:
    return isinstance(getattr(value, "spec", None), ToolSpec)
