"""Hooks of an engine: those of approved plugins, and the commands that agent files name."""

from collections.abc import Callable, Sequence

import msgspec

from treadle.config.approved_plugins import ApprovedPlugin, read_approved_plugins
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.ports.hooks import Hook
from treadle.ports.sandbox import Programs


def load_approved_hooks(home: Home) -> list[Hook]:
    """Return the hooks of approved plugins. Raise UsageError if one cannot be loaded as it was approved."""
    approved = read_approved_plugins(home)
    if not approved:
        return []
    from treadle.tools.plugin_hooks import InstalledPlugin, load_hooks

    return load_hooks([InstalledPlugin(*msgspec.structs.astuple(each)) for each in approved])


def make_agent_hooks(home: Home, programs: Programs) -> Callable[[AgentSpec], Sequence[Hook]]:
    """Return a function that makes the hooks of an agent's file."""

    def make(agent: AgentSpec) -> Sequence[Hook]:
        if not agent.hooks:
            return ()
        from treadle.tools.command_hooks import make_command_hooks

        return make_command_hooks(agent, home.workspace(agent), agent.confinement, programs)

    return make


def list_hook_plugins() -> list[ApprovedPlugin]:
    """Return the hooks of all installed packages, as they would be approved now."""
    from treadle.tools.plugin_hooks import list_plugins

    return [ApprovedPlugin(each.name, each.value, each.package, each.version) for each in list_plugins()]


def list_tool_plugins() -> list[ApprovedPlugin]:
    """Return the tools of all installed packages. They need no approval; an agent's `tools` selects them."""
    from treadle.tools.plugin_hooks import TOOL_GROUP, list_plugins

    return [ApprovedPlugin(each.name, each.value, each.package, each.version) for each in list_plugins(TOOL_GROUP)]
