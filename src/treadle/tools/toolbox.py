"""The tools that a process knows: its own, and those of installed plugins."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeGuard, cast

from treadle.domain.errors import UsageError
from treadle.domain.suggestions import find_closest
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Tool
from treadle.tools.toolset import Toolset

PLUGIN_GROUP = "treadle.tools"
"""The entry-point group of plugins: each entry point is a Tool, a list of Tools or a Toolset."""
SET_PREFIX = "@"
"""What the name of a set begins with, in an allowlist."""


class ToolRegistry:
    """Tools by name. A name stands for one tool."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._builtin: set[str] = set()
        """The names of those that give way to others."""
        self._sets: dict[str, tuple[str, ...]] = {}
        for tool in tools:
            self.add(tool)

    def add_plugins(self) -> None:
        """Make the tools of every installed plugin known. They are imported now."""
        for plugin in sorted(entry_points(group=PLUGIN_GROUP), key=lambda plugin: plugin.name):
            loaded = _load_plugin(plugin)
            if isinstance(loaded, Toolset):
                self.add_set(loaded)
            else:
                for tool in loaded:
                    self.add(tool)

    def add(self, tool: Tool) -> None:
        """Make a tool known. Raises UsageError if another one has its name."""
        name = tool.spec.name
        if name in self._builtin:
            self._builtin.discard(name)
            self._tools[name] = tool
        elif self._tools.setdefault(name, tool) is not tool:
            raise UsageError(f"two tools are called `{name}`; give one of them another name")

    def add_builtin(self, tools: Iterable[Tool | Toolset]) -> None:
        """Make tools known that give way to others of the same name."""
        for item in tools:
            if isinstance(item, Toolset):
                self._sets[item.name] = item.names
            for tool in item if isinstance(item, Toolset) else (item,):
                if self._tools.setdefault(tool.spec.name, tool) is tool:
                    self._builtin.add(tool.spec.name)

    def add_set(self, tools: Toolset) -> None:
        """Make a set known, with its tools. Raises UsageError if another set, or another tool, has its name."""
        if self._sets.setdefault(tools.name, tools.names) != tools.names:
            raise UsageError(f"two sets of tools are called `{tools.name}`; give one of them another name")
        for tool in tools:
            self.add(tool)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._aliased(name)

    def _aliased(self, name: str) -> Tool | None:
        return next((tool for tool in self._tools.values() if name in tool.spec.aliases), None)

    def select(self, allowlist: Sequence[str]) -> tuple[Tool, ...]:
        names = {name for entry in allowlist for name in self._matching(entry)}
        return tuple(self._tools[name] for name in sorted(names))

    def _matching(self, entry: str) -> list[str]:
        """The names that one entry of an allowlist stands for. A glob may stand for none."""
        if entry.startswith(SET_PREFIX) and (names := self._sets.get(entry.removeprefix(SET_PREFIX))) is not None:
            return list(names)
        if any(character in entry for character in "*?["):
            return [
                name
                for name, tool in self._tools.items()
                if any(fnmatchcase(known, entry) for known in (name, *tool.spec.aliases))
            ]
        if (tool := self.find(entry)) is not None:
            return [tool.spec.name]
        known = sorted([*self._tools, *(f"{SET_PREFIX}{name}" for name in self._sets)])
        near = find_closest(entry, known)
        meant = f"did you mean `{near}`?" if near else f"known tools: {', '.join(known) or 'none'}"
        raise UsageError(f"no tool is called `{entry}`; {meant}")


def _load_plugin(plugin: EntryPoint) -> list[Tool] | Toolset:
    origin = f"plugin `{plugin.name}` ({plugin.value})"
    try:
        loaded: Any = plugin.load()
    except Exception as error:  # a plugin may raise anything while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{origin} cannot be loaded: {reason}. Mend it or uninstall it.") from error
    if isinstance(loaded, Toolset):
        return loaded
    tools = cast("list[Any]", loaded) if isinstance(loaded, list) else [loaded]
    for tool in tools:
        if not _is_tool(tool):
            raise UsageError(
                f"{origin} holds a value of type {type(tool).__name__}, not a Tool; decorate it with @treadle.tool"
            )
    return tools


def _is_tool(value: Any) -> TypeGuard[Tool]:
    return isinstance(getattr(value, "spec", None), ToolSpec)
