"""The history of an agent, as `treadle agents` prints and changes it."""

from contextlib import suppress

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.database_url import is_in_memory
from treadle.config.home import Home
from treadle.domain.agent_versions import CURRENT
from treadle.domain.errors import ConfigError, TreadleError
from treadle.operations import agent_versions
from treadle.operations.operation import LocalCaller, list_items
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.terminal.output import Column, note, print_json, print_list, print_result, when
from treadle.surfaces.terminal.text import inert


async def list_versions(name: str, limit: int, json: bool) -> int:
    """Print the versions of an agent, the newest first."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        found = await list_items(caller, agent_versions.HISTORY, agent_versions.ListVersions(name), limit)
        is_recorded = await _is_recorded(caller, name)
    head = ("VERSION", "CHANGED", Column("AUTHOR", shrinks_to=12), Column("CHANGE", shrinks_to=12), "LABELS")
    print_list(
        found, head, _version_row, json=json, empty=f"No versions of `{name}` yet. Its next run records one."
    )
    if found and not is_recorded and not json:
        note("The file has changed since then. The next run records the change.")
    return 0


async def compare_versions(name: str, version: str, since: str | None, json: bool) -> int:
    """Print what changed in a version of an agent."""
    async with open_admin_caller(current_home()) as caller:
        found = await caller.call(agent_versions.DIFF, agent_versions.CompareVersions(name, version, since))
    if json:
        print_json(found)
    elif found.diff:
        print(inert(found.diff), end="")
    else:
        note(f"Versions {found.before} and {found.after} of `{name}` are the same.")
    return 0


async def restore_version(name: str, version: str, json: bool) -> int:
    """Write an earlier version of an agent to its file."""
    async with open_admin_caller(current_home()) as caller:
        made = await caller.call(agent_versions.RESTORE, agent_versions.OneVersion(name, version))
    said = f"Restored version {made.restored} of `{name}` as version {made.number}. The next run uses it."
    if made.restored is None:
        said = f"The file of `{name}` is as in version {made.number} already."
    print_result(made, said, json=json)
    return 0


async def label_version(name: str, label: str, version: str, remove: bool, json: bool) -> int:
    """Give a version of an agent a label, or remove one."""
    async with open_admin_caller(current_home()) as caller:
        if remove:
            await caller.call(agent_versions.UNLABEL, agent_versions.OneLabel(name, label))
            print_result(
                {"agent": name, "label": label, "removed": True}, f"Removed the label `{label}`.", json=json
            )
            return 0
        found = await caller.call(agent_versions.LABEL, agent_versions.SetLabel(name, label, version))
    print_result(found, f"`{name}@{label}` is version {found.number}.", json=json)
    return 0


async def _is_recorded(caller: LocalCaller, name: str) -> bool:
    """Return whether the file of an agent is as in its latest version, as far as it has a valid file."""
    with suppress(ConfigError):
        return (
            name not in caller.context.agents.names() or await caller.context.versions().current(name) is not None
        )
    return True


async def record_change(home: Home, name: str) -> None:
    """Record what was just written as a version. Otherwise the next run does it."""
    if not is_in_memory(home.database_url):
        with suppress(TreadleError):
            async with open_admin_caller(home) as caller:
                await caller.call(agent_versions.VERSION, agent_versions.OneVersion(name, CURRENT))


def _version_row(view: agent_versions.VersionView) -> tuple[str, ...]:
    change = "deleted" if view.deleted else f"restored {view.restored}" if view.restored else view.origin
    return str(view.number), when(view.at), view.author, change, " ".join(view.labels)
