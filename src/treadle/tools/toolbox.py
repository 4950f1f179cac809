"""The tools that a process knows: its own, and those of installed plugins."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeGuard, cast

from treadle.domain.errors import UsageError
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Tool

PLUGIN_GROUP = "treadle.tools"
"""The entry-point group of plugins: each entry point is a Tool or a list of Tools."""


class ToolRegistry:
    """Tools by name. A name stands for one tool."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    @classmethod
    def with_plugins(cls, tools: Iterable[Tool] = ()) -> "ToolRegistry":
        """The given tools and those of every installed plugin, which are imported now."""
        registry = cls(tools)
        for plugin in sorted(entry_points(group=PLUGIN_GROUP), key=lambda plugin: plugin.name):
            for tool in _load(plugin):
                registry.add(tool)
        return registry

    def add(self, tool: Tool) -> None:
        """Make a tool known. Raises UsageError if another one has its name."""
        name = tool.spec.name
        if self._tools.setdefault(name, tool) is not tool:
            raise UsageError(f"two tools are called `{name}`; give one of them another name")

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def select(self, allowlist: Sequence[str]) -> tuple[Tool, ...]:
        names = {name for entry in allowlist for name in self._matching(entry)}
        return tuple(self._tools[name] for name in sorted(names))

    def _matching(self, entry: str) -> list[str]:
        """The names that one entry of an allowlist stands for. A glob may stand for none."""
        if any(character in entry for character in "*?["):
            return [name for name in self._tools if fnmatchcase(name, entry)]
        if entry in self._tools:
            return [entry]
        near = get_close_matches(entry, self._tools, n=1)
        meant = f"did you mean `{near[0]}`?" if near else f"known tools: {', '.join(sorted(self._tools)) or 'none'}"
        raise UsageError(f"no tool is called `{entry}`; {meant}")


def _load(plugin: EntryPoint) -> list[Tool]:
    origin = f"plugin `{plugin.name}` ({plugin.value})"
    try:
        loaded: Any = plugin.load()
    except Exception as error:  # a plugin may raise anything while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{origin} cannot be loaded: {reason}. Mend it or uninstall it.") from error
    tools = cast("list[Any]", loaded) if isinstance(loaded, list) else [loaded]
    for tool in tools:
        if not _is_tool(tool):
            raise UsageError(
                f"{origin} holds a value of type {type(tool).__name__}, not a Tool; decorate it with @treadle.tool"
            )
    return tools


def _is_tool(value: Any) -> TypeGuard[Tool]:
    return isinstance(getattr(value, "spec", None), ToolSpec)
