"""`treadle plugins`: hooks of installed packages, which are off until they are approved."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from treadle.config.approved_plugins import read_approved_plugins, write_approved_plugins
from treadle.domain.errors import UsageError
from treadle.domain.plugins import Plugin
from treadle.domain.suggestions import find_closest
from treadle.home.hooks import list_hook_plugins, list_tool_plugins
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home
from treadle.surfaces.terminal.line_input import Prompt, ask_yes_or_no
from treadle.surfaces.terminal.output import Column, note, print_json, print_table
from treadle.surfaces.terminal.process import FAILED
from treadle.surfaces.terminal.text import reveal_line

group = Group("plugins")
Name = Annotated[str, Argument(metavar="NAME", help="The name of the hook.")]


@group.command("list")
async def list_plugins(json: Json = False) -> int:
    """List the hooks and tools of installed packages. Hooks are off until they are approved."""
    approved, installed = read_approved_plugins(current_home()), list_hook_plugins()
    rows = [(plugin, "hook", _state(plugin, approved)) for plugin in installed]
    names = {plugin.name for plugin in installed}
    rows += [(plugin, "hook", "missing") for plugin in approved if plugin.name not in names]
    rows += [(plugin, "tools", "on") for plugin in list_tool_plugins()]
    if json:
        for plugin, kind, state in rows:
            print_json({**msgspec.structs.asdict(plugin), "kind": kind, "state": state})
    elif rows:
        head = ("PLUGIN", "KIND", "STATE", "PACKAGE", Column("CODE", shrinks_to=16, is_optional=True))
        print_table(head, [_row(*row) for row in rows])
    else:
        note("No installed package brings hooks or tools for Treadle.")
    return 0


@group.command("approve")
async def approve_plugin(
    name: Name,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> int:
    """Approve a hook of an installed package. It then sees every tool call.

    Another version of the package needs a new approval."""
    home = current_home()
    plugin = _find(name, list_hook_plugins())
    if not yes:
        if not Prompt.is_possible():
            raise UsageError(f"There is no terminal to ask at. Run: treadle plugins approve {name} --yes")
        note(f"{plugin.package} {plugin.version}: {plugin.value}")
        if not await ask_yes_or_no(f"Run the hook {name} for every tool call, inside the engine?"):
            note(f"{name} was not approved.")
            return FAILED
    others = [each for each in read_approved_plugins(home) if each.name != name]
    write_approved_plugins(home, [*others, plugin])
    if json:
        print_json({**msgspec.structs.asdict(plugin), "state": "approved"})
    else:
        note(f"Approved {name} of {plugin.package} {plugin.version}. It is on from the next start of a process.")
    return 0


@group.command("revoke")
async def revoke_plugin(name: Name, json: Json = False) -> int:
    """Revoke the approval of a hook."""
    home = current_home()
    approved = read_approved_plugins(home)
    _find(name, approved)
    write_approved_plugins(home, [each for each in approved if each.name != name])
    if json:
        print_json({"name": name, "revoked": True})
    else:
        note(f"Revoked {name}. It is off from the next start of a process.")
    return 0


def _find(name: str, plugins: Sequence[Plugin]) -> Plugin:
    known = {each.name: each for each in plugins}
    if name in known:
        return known[name]
    near = find_closest(name, list(known))
    meant = f"Did you mean `{near}`?" if near else "`treadle plugins list` shows which there are."
    raise UsageError(f"There is no hook `{name}`. {meant}")


def _state(plugin: Plugin, approved: Sequence[Plugin]) -> str:
    known = {each.name: each for each in approved}
    if plugin.name not in known:
        return "off"
    return "approved" if known[plugin.name] == plugin else "changed since"


def _row(plugin: Plugin, kind: str, state: str) -> tuple[str, ...]:
    package = f"{plugin.package} {plugin.version}"
    return reveal_line(plugin.name), kind, state, reveal_line(package), reveal_line(plugin.value)
