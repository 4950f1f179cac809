"""`treadle agents`: the agents of the home."""

from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec.structs import replace

from treadle.bootstrap.callers import open_persistent_readonly_caller, open_readonly_caller
from treadle.config.agent_files import TEMPLATES, AgentTemplate, find_template
from treadle.config.home import Home
from treadle.config.yaml_files import dump_yaml
from treadle.domain.errors import ConfigError, UsageError
from treadle.operations import agents
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.confirmation import is_confirmed
from treadle.surfaces.cli.shared_options import AgentArgument, Json, Limit, Yes
from treadle.surfaces.home_access.attachable_home import find_fault
from treadle.surfaces.home_access.connection import configured_home, current_home, open_admin_caller
from treadle.surfaces.terminal.editor import open_editor, write_copy
from treadle.surfaces.terminal.output import (
    Column,
    alert,
    note,
    print_error,
    print_json,
    print_list,
    print_result,
)
from treadle.surfaces.terminal.process import USAGE
from treadle.surfaces.terminal.text import inert

group = Group("agents")
CURRENT = "current"
VersionArgument = Annotated[
    str, Argument(metavar="VERSION", help=f"The number of a version, or a label. Default: `{CURRENT}`.")
]


@group.command("list")
async def list_agents(json: Json = False) -> int:
    """List the agents."""
    home, code = current_home(), 0
    views: list[agents.AgentView] = []
    async with open_readonly_caller(home) as caller:
        for name in home.agents():
            try:
                views.append(await caller.call(agents.SHOW, agents.OneAgent(name)))
            except ConfigError as error:
                print_error(error)
                code = USAGE
    head = (Column("AGENT", shrinks_to=24), Column("MODEL", shrinks_to=16), Column("TOOLS", shrinks_to=12), "STATE")
    if views or code == 0:
        print_list(views, head, _row, json=json, empty=f"No agents yet in {home.path / 'agents'}.")
    return code


@group.command("show")
async def show_agent(name: AgentArgument, json: Json = False) -> int:
    """Show the settings of an agent."""
    home = current_home()
    agent = home.agent(name)
    if json:
        async with open_readonly_caller(home) as caller:
            print_json(await caller.call(agents.SHOW, agents.OneAgent(name)))
    else:
        print(inert(dump_yaml(_with_defaults(agent))), end="")
    return 0


@group.command("create")
async def create_agent(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the new agent.")],
    model: Annotated[
        str | None, Option("-m", "--model", metavar="MODEL", help="An alias or provider/model-id.")
    ] = None,
    template: Annotated[
        str | None, Option("--template", metavar="NAME", help=f"Begin with a template: {', '.join(TEMPLATES)}.")
    ] = None,
    tools: Annotated[
        str | None, Option("--tools", metavar="NAMES", help="Tools, separated by commas. Globs are allowed.")
    ] = None,
    persona: Annotated[
        str | None, Option("--persona", metavar="TEXT", help="Its instructions. `@FILE` reads them from a file.")
    ] = None,
    source: Annotated[
        Path | None, Option("--from", metavar="FILE", help="Copy the settings from this agent file.")
    ] = None,
    json: Json = False,
) -> int:
    """Create an agent: from a template, from a file, or with the tools and the persona that you name.

    The file has comments with the settings that people change first. Calls need an approval until it says
    otherwise."""
    if source is not None and (template or tools or persona):
        raise UsageError("--from copies all settings. Leave out --template, --tools and --persona, or --from.")
    begin = AgentTemplate("") if template is None else find_template(template)
    if tools is not None:
        begin = replace(begin, tools=_check_tools(tools), free=(), commands=())
    if persona is not None:
        begin = replace(begin, persona=_read_persona(persona))
    home = current_home()
    path = home.create_agent(name, model, source, begin)
    print_result({"name": name, "file": str(path)}, f"Created the agent `{name}`: {path}", json=json)
    if not json:
        note(f"Try it: treadle run -a {name} MESSAGE")
        await _warn_about_refusals(home, name)
    return 0


@group.command("edit")
async def edit_agent(name: AgentArgument) -> int:
    """Edit the file of an agent in $VISUAL or $EDITOR. The file is validated before it is saved."""
    if _edit(current_home(), name):
        from treadle.surfaces.cli import agent_history

        await agent_history.record_change(current_home(), name)
        await _warn_about_refusals(current_home(), name)
    return 0


@group.command("delete")
async def delete_agent(name: AgentArgument, yes: Yes = False, json: Json = False) -> int:
    """Delete the file of an agent. Its sessions and memories are kept."""
    home = current_home()
    home.refuse_unknown(name)
    if not yes and not await is_confirmed(f"Delete the agent `{name}`?", f"Deleting the agent `{name}`"):
        note("Nothing was deleted.")
        return 1
    home.delete_agent(name)
    said = f"Deleted the agent `{name}`. Its sessions and memories are kept."
    print_result({"name": name, "deleted": True}, said, json=json)
    return 0


@group.command("history")
async def list_versions(name: AgentArgument, limit: Limit = 50, json: Json = False) -> int:
    """List the versions of an agent, the newest first. Every change of its file is a version."""
    from treadle.surfaces.cli import agent_history

    return await agent_history.list_versions(name, limit, json)


@group.command("diff")
async def compare_versions(
    name: AgentArgument,
    version: VersionArgument = CURRENT,
    since: Annotated[
        str | None,
        Option("--since", metavar="VERSION", help="Compare with this version instead of the one before."),
    ] = None,
    json: Json = False,
) -> int:
    """Show what changed in a version of an agent."""
    from treadle.surfaces.cli import agent_history

    return await agent_history.compare_versions(name, version, since, json)


@group.command("restore")
async def restore_version(
    name: AgentArgument,
    version: Annotated[str, Argument(metavar="VERSION", help="The number of a version, or a label.")],
    json: Json = False,
) -> int:
    """Write an earlier version of an agent to its file. The next run uses it."""
    from treadle.surfaces.cli import agent_history

    return await agent_history.restore_version(name, version, json)


@group.command("label")
async def label_version(
    name: AgentArgument,
    label: Annotated[str, Argument(metavar="LABEL", help="A label, for example `production`.")],
    version: VersionArgument = CURRENT,
    remove: Annotated[bool, Option("--remove", help="Remove the label.")] = False,
    json: Json = False,
) -> int:
    """Give a version of an agent a label, which runs can name: `treadle run -a NAME@LABEL`."""
    from treadle.surfaces.cli import agent_history

    return await agent_history.label_version(name, label, version, remove, json)


@group.command("state")
async def agent_state(
    name: AgentArgument,
    state: Annotated[
        Literal["running", "paused", "stopped"] | None,
        Argument(metavar="[running|paused|stopped]", help="The new state. Default: print the state."),
    ] = None,
    json: Json = False,
) -> int:
    """Show or set whether an agent accepts messages. Runs in progress continue."""
    home = current_home()
    home.refuse_unknown(name)
    if state is None:
        async with open_persistent_readonly_caller(home) as caller:
            view = await caller.call(agents.SHOW, agents.OneAgent(name))
    else:
        async with open_admin_caller(home) as caller:
            view = await caller.call(agents.SET_STATE, agents.SetState(name, state))
    if json:
        print_json(view)
    else:
        print(f"{name}  {view.state}")
    return 0


# ── Editing ──


def _edit(home: Home, name: str) -> bool:
    """Let the user edit a copy, and replace the file with it if it is valid. An invalid copy is kept.

    Return whether the file was changed."""
    before = home.agent_file(name).read_bytes()
    copy = write_copy(before, f"{name}-", ".yaml")
    open_editor(copy)
    after = copy.read_bytes()
    if after == before:
        copy.unlink()
        note("Nothing was changed.")
        return False
    try:
        home.replace_agent(name, copy)
    except ConfigError as error:
        raise ConfigError(f"{error}. `{name}` was not changed; your text is in {copy}") from None
    copy.unlink()
    old, new = before.decode(errors="replace").splitlines(), after.decode().splitlines()
    lines = unified_diff(old, new, "before", "after", lineterm="", n=1)
    for line in lines:
        print(inert(line))
    note(f"Changed `{name}`, from its next run on.")
    return True


async def _warn_about_refusals(home: Home, name: str) -> None:
    """Print what a run would refuse. The file stands: a program may add the tool, and a key may come later."""
    from treadle.home.agent_checks import find_unknown_tools, find_unusable_models
    from treadle.home.hooks import find_refused_hooks

    agent = home.agent(name)
    for problem in find_refused_hooks(home, agent):
        alert(f"In runs of `{name}`, {problem}")
    if find_fault(home) is not None:
        return  # the settings of the owner do not say which MCP servers and keys there are
    exact = [tool for tool in agent.tools if not set(tool) & set("*?[")]
    for problem in (*await find_unusable_models(home, agent), *find_unknown_tools(home, exact)):
        alert(f"A run of `{name}` is refused: {problem}")


def _check_tools(names: str) -> tuple[str, ...]:
    """Return the tools of a list. Raise UsageError for a name or a glob that no tool matches."""
    from treadle.home.agent_checks import find_unknown_tools

    found = tuple(name.strip() for name in names.split(",") if name.strip())
    if problems := find_unknown_tools(configured_home(), found):
        raise UsageError(f"--tools: {problems[0]}")
    return found


def _read_persona(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        raise UsageError(f"--persona: {given[1:]} cannot be read: {error}.") from None


def _row(view: agents.AgentView) -> tuple[str, ...]:
    agent = view.agent
    model = f"{agent.provider}/{agent.model}" if agent.provider else agent.model
    return agent.name, model, ", ".join(agent.tools), view.state


def _with_defaults(value: Any) -> Any:
    """Return a struct as a dictionary of all its fields, those with default values too."""
    if isinstance(value, msgspec.Struct):
        return {name: _with_defaults(item) for name, item in msgspec.structs.asdict(value).items()}
    return [_with_defaults(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value
