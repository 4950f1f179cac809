"""Hooks of an engine: those of approved plugins, and the commands that agent files name."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from treadle.config.approved_plugins import read_approved_plugins
from treadle.config.home import Home
from treadle.core.tools.permissions import apply_rules
from treadle.domain.agents import AgentSpec
from treadle.domain.plugins import Plugin
from treadle.ports.hooks import Hook
from treadle.ports.sandbox import CommandError, Programs
from treadle.ports.tool import UNCONFINED_PREFIX, Concern
from treadle.system.engine_places import find_writable_places, list_engine_places
from treadle.tools.bash import find_command_subjects, make_command_spec

if TYPE_CHECKING:
    from treadle.tools.hook_programs import HookPlaces


def load_approved_hooks(home: Home) -> list[Hook]:
    """Return the hooks of approved plugins. Raise UsageError if one cannot be loaded as it was approved."""
    approved = read_approved_plugins(home)
    if not approved:
        return []
    from treadle.tools.plugin_hooks import load_hooks

    return load_hooks(approved)


def make_agent_hooks(
    home: Home, programs: Programs, protected: tuple[str, ...]
) -> Callable[[AgentSpec], Sequence[Hook]]:
    """Return a function that makes the hooks of an agent's file. `protected` are places that no run can write."""

    def make(agent: AgentSpec) -> Sequence[Hook]:
        if not agent.hooks:
            return ()
        from treadle.tools.command_hooks import HookSetup, make_command_hooks

        workspace, refusal = home.workspace(agent), partial(_find_hook_refusal, agent, programs)
        places = _find_hook_places(home, agent, protected)
        return make_command_hooks(agent, HookSetup(workspace, agent.confinement, places, programs, refusal))

    return make


def _find_hook_places(home: Home, agent: AgentSpec, protected: tuple[str, ...]) -> "HookPlaces":
    from treadle.tools.hook_programs import HookPlaces

    workspace = home.workspace_path(agent)
    folders = (home.path / "agents" / agent.name, home.path / "hooks")
    return HookPlaces(folders, workspace, find_writable_places(workspace, agent.confinement, protected))


def find_refused_hooks(home: Home, agent: AgentSpec) -> list[str]:
    """Return why programs of an agent's hooks would not run, one sentence each."""
    if not agent.hooks:
        return []
    from treadle.tools.hook_programs import HookRefused, read_scripts

    protected = (*list_engine_places().all, os.path.realpath(home.path))
    problems: list[str] = []
    for hook in agent.hooks:
        try:
            read_scripts(hook, _find_hook_places(home, agent, protected))
        except (HookRefused, OSError) as error:
            problems.append(f"the hook `{hook.command[:80]}` blocks its calls: {error}")
    return problems


async def _find_hook_refusal(agent: AgentSpec, programs: Programs, command: str) -> str | None:
    """Return why a hook must not run without a sandbox, or None. The rules of the agent decide as for `bash`."""
    try:
        found = await programs.confinement()
    except CommandError as error:
        return str(error)
    is_off = agent.confinement.mode == "off"
    if found.sandbox and not is_off:
        return None
    concern = None if is_off else Concern("unconfined", f"{UNCONFINED_PREFIX}{found.reason}")
    subjects = msgspec.structs.replace(find_command_subjects(command), concern=concern)
    if apply_rules(agent.approvals, make_command_spec(), subjects).verdict == "auto":
        return None
    reason = "sandbox: off" if is_off else found.reason
    return (
        f"it would run without a sandbox ({reason}), and no rule of the agent allows that "
        f'command. Use a sandbox, or allow it as a command: `{{tool: bash, match: "exactly: {command}", do: auto}}`'
    )


def list_hook_plugins() -> list[Plugin]:
    """Return the hooks of all installed packages, as they would be approved now."""
    from treadle.tools.plugin_hooks import list_plugins

    return list_plugins()


def list_tool_plugins() -> list[Plugin]:
    """Return the tools of all installed packages. They need no approval; an agent's `tools` selects them."""
    from treadle.tools.plugin_hooks import TOOL_GROUP, list_plugins

    return list_plugins(TOOL_GROUP)
