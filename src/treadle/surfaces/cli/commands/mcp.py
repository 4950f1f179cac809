"""`treadle mcp`: MCP servers as tools of agents, and agents as tools of MCP clients."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec

from treadle.config.config_edits import add_entry, remove_entry
from treadle.doctor.mcp import read_connections
from treadle.domain.errors import UsageError
from treadle.domain.mcp_servers import NO_CONSENT, Consent
from treadle.home.mcp_entries import (
    ServerEntry,
    compare_tools,
    describe_target,
    find_entry,
    list_entries,
    make_server_view,
    store_secrets,
)
from treadle.mcp.import_file import ImportedServer, read_import
from treadle.mcp.pool import INSTALL
from treadle.ports.tool import ToolError
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.mcp_entries import (
    NONE,
    check_entry,
    check_start,
    describe_connections,
    describe_state,
    make_command,
    output_width,
    parse_pairs,
    resolve_paths,
)
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import configured_home, current_home, open_home
from treadle.surfaces.terminal.line_input import Prompt, ask_yes_or_no
from treadle.surfaces.terminal.output import Column, alert, format_count, note, print_json, print_table
from treadle.surfaces.terminal.process import FAILED
from treadle.surfaces.terminal.text import inert, measure_terminal, reveal_line

SECTION = "mcp_servers"
group = Group("mcp")

Name = Annotated[str, Argument(metavar="NAME", help="The name of the server.")]
OfAgent = Annotated[
    str,
    Option(
        "-a",
        "--agent",
        metavar="AGENT",
        help="A server in the file of this agent. Default: one in config.yaml of the home.",
        suggest=completion.agent_names,
    ),
]
Yes = Annotated[bool, Option("--yes", help="Approve its tools without asking.")]
AllowWrite = Annotated[
    bool,
    Option("--allow-write", help="Let the program write the workspace although it has secrets or the network."),
]
PinContent = Annotated[
    bool, Option("--pin-content", help="Pin code that is in a folder that agents can write, as it is now.")
]


@group.command("add")
async def add_server(
    name: Name,
    command: Annotated[
        list[str] | None, Argument(metavar="-- COMMAND...", help="The program of the server and its arguments.")
    ] = None,
    url: Annotated[str | None, Option(metavar="URL", help="The address of a remote server.")] = None,
    env: Annotated[
        list[str] | None,
        Option("-e", "--env", metavar="NAME=VALUE", help="A variable of the program. Repeatable."),
    ] = None,
    header: Annotated[
        list[str] | None,
        Option("--header", metavar="NAME=VALUE", help="A header for a remote server. Repeatable."),
    ] = None,
    network: Annotated[
        bool | None,
        Option("--network/--no-network", help="Whether the program may use the network. Default: ask."),
    ] = None,
    readable: Annotated[
        list[str] | None, Option(metavar="PATH", help="A folder that the program may read. Repeatable.")
    ] = None,
    writable: Annotated[
        list[str] | None, Option(metavar="PATH", help="A folder that the program may write. Repeatable.")
    ] = None,
    workspace: Annotated[
        Literal["none", "read", "write"] | None,
        Option(help="What the program may do with the workspace. Default: read, or none with secrets or network."),
    ] = None,
    allow_write: AllowWrite = False,
    pin_content: PinContent = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Add a server to config.yaml, connect to it, and approve its tools.

    Secrets are given as {{vault:NAME}}."""
    home = configured_home()
    if name in home.config().mcp_servers:
        raise UsageError(f"There is an MCP server `{name}` already. Remove it first: treadle mcp remove {name}")
    if not command and url is None:
        raise UsageError(f"No program and no address: use treadle mcp add {name} -- COMMAND..., or --url URL.")
    settings: dict[str, Any] = {
        "command": command[0] if command else None,
        "args": command[1:] if command else None,
        "url": url,
        "env": parse_pairs(env) if env else None,
        "headers": parse_pairs(header) if header else None,
        "readable": resolve_paths(readable) if readable else None,
        "writable": resolve_paths(writable) if writable else None,
        "workspace": workspace,
    }
    if command and network is None and Prompt.is_possible() and not yes:
        network = await ask_yes_or_no(f"Does {name} need the network?")
    values = {key: value for key, value in (settings | {"network": network}).items() if value}
    check_entry(name, values)
    check_start(name, values)
    add_entry(home, SECTION, name, values)
    if not json:
        note(f"Added {name} to {home.path / 'config.yaml'}.")
    consent = Consent(allow_write, pin_content)
    return await _approve(find_entry(home, name), yes=yes, json=json, is_new=True, consent=consent)


@group.command("list")
async def list_servers(json: Json = False) -> int:
    """List the servers, their approvals and the state of their connections."""
    home = configured_home()
    entries, states = list_entries(home), await read_connections(home)
    if json:
        for entry in entries:
            print_json(make_server_view(entry, states.get((entry.name, entry.agent), ())))
        return 0
    if not entries:
        note("No MCP servers yet. Add one: treadle mcp add NAME -- COMMAND...")
        return 0
    head = (
        "SERVER",
        Column("AGENT", is_optional=True),
        "STATE",
        Column("TOOLS", is_number=True),
        "CONNECTION",
        Column("TARGET", 20),
    )
    rows = [
        (
            reveal_line(entry.name),
            entry.agent or NONE,
            describe_state(entry),
            str(len(entry.tools)),
            describe_connections(states.get((entry.name, entry.agent), ())),
            reveal_line(describe_target(entry.settings)),
        )
        for entry in entries
    ]
    print_table(head, rows)
    return 0


@group.command("show")
async def show_server(name: Name, agent: OfAgent = "", json: Json = False) -> int:
    """Show the settings of a server and its approved tools."""
    from treadle.surfaces.cli.mcp_view import describe_entry, describe_tool

    entry = find_entry(configured_home(), name, agent)
    if json:
        settings = msgspec.to_builtins(entry.settings)
        shown = msgspec.to_builtins(make_server_view(entry))
        print_json({**shown, "settings": settings, "raw_tools": list(entry.tools)})
        return 0
    is_pinned = entry.pin is not None and bool(entry.pin.contents)
    for line in describe_entry(entry, is_pinned=is_pinned):
        print(line)
    print(f"state    {describe_state(entry)}")
    for tool in entry.tools:
        for line in describe_tool(entry.name, tool, output_width()):
            print(line)
    return 0


@group.command("test")
async def probe_server(name: Name, agent: OfAgent = "", json: Json = False) -> int:
    """Connect to a server, list its tools and compare them with the approved ones."""
    from treadle.surfaces.cli.mcp_view import describe_changes, describe_inspection

    entry = find_entry(configured_home(), name, agent)
    found = await _inspect(entry)
    changes = compare_tools(entry.tools, found.tools)
    is_current = entry.state in ("approved", "disabled") and not changes.any
    if json:
        from treadle.home.mcp_status import make_inspection

        print_json({**msgspec.to_builtins(make_inspection(entry, found)), "is_approved": is_current})
        return 0 if is_current else FAILED
    for line in describe_inspection(entry, found):
        print(line)
    for line in describe_changes(entry.name, changes, output_width()):
        print(line)
    if not is_current:
        alert(f"It is not approved as it is. Approve it: {make_command('approve', entry)}")
    return 0 if is_current else FAILED


@group.command("approve")
async def approve(
    name: Name,
    agent: OfAgent = "",
    allow_write: AllowWrite = False,
    pin_content: PinContent = False,
    yes: Yes = False,
    json: Json = False,
) -> int:
    """Connect to a server, show what is new or changed, and approve its entry and its tools as they are."""
    consent = Consent(allow_write, pin_content)
    return await _approve(find_entry(configured_home(), name, agent), yes=yes, json=json, consent=consent)


@group.command("remove")
async def remove_server(name: Name, json: Json = False) -> int:
    """Remove a server from config.yaml, with its approval."""
    from treadle.home.mcp_admin import revoke_server
    from treadle.home.mcp_approvals import HomeApprovals

    home = configured_home()
    is_removed = remove_entry(home, SECTION, name)
    had_pin = revoke_server(HomeApprovals(home), name)
    if not is_removed and not had_pin:
        find_entry(home, name)  # explains which there are
        raise UsageError(f"The entry `{name}` could not be removed from config.yaml. Remove it with an editor.")
    if json:
        print_json({"name": name, "removed": True})
    else:
        note(f"Removed {name}.")
    return 0


@group.command("login")
async def login(name: Name, agent: OfAgent = "", yes: Yes = False, json: Json = False) -> int:
    """Sign in to a remote server with a browser. The tokens are kept in the vault."""
    entry = find_entry(configured_home(), name, agent)
    if not entry.settings.is_remote:
        raise UsageError(f"The MCP server `{name}` is a program; only remote servers need a sign-in.")

    async def show(url: str) -> None:
        note("Open this address in a browser on this machine to sign in:")
        print(inert(url), file=sys.stderr, flush=True)

    found = await _inspect(entry, show)
    if not json:
        note(f"Signed in to {name}: {format_count(len(found.tools), 'tool')}. The tokens are in the vault.")
    if entry.state == "approved" and not compare_tools(entry.tools, found.tools).any:
        return 0
    return await _approve(entry, yes=yes, json=json, found=found)


@group.command("import")
async def import_servers(
    file: Annotated[str, Argument(metavar="FILE", help="An .mcp.json of another tool.")],
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> int:
    """Copy the servers of an .mcp.json into config.yaml. Their secrets go to the vault.

    The servers are not started, and not approved."""

    home = configured_home()
    found, known = read_import(file), home.config().mcp_servers
    new = [server for server in found if server.name not in known and not server.problem]
    for server in new:
        check_entry(server.name, server.values)
    if not json:
        for server in new:
            target = server.values.get("url") or " ".join(
                [server.values["command"], *server.values.get("args", [])]
            )
            note(f"{server.name}: {reveal_line(target)}")
    if new and not yes:
        if not Prompt.is_possible():
            raise UsageError("There is no terminal to ask at. Read the file, then import it with --yes.")
        if not await ask_yes_or_no(f"Add {format_count(len(new), 'server')} to config.yaml?"):
            return FAILED
    for server in new:
        store_secrets(home, server.secrets)
        add_entry(home, SECTION, server.name, server.values)
        if json:
            print_json({"name": server.name, "secrets": sorted(server.secrets), "missing": server.missing})
        else:
            _describe_import(server)
    for server in found if not json else ():
        if server.name in known:
            note(f"{server.name} is configured already and was left as it is.")
        elif server.problem:
            note(f"{server.name} was left out: {server.problem}.")
    return 0


def _describe_import(server: ImportedServer) -> None:
    for secret in server.secrets:
        note(f"{server.name}: stored {secret} in the vault.")
    for variable in server.missing:
        note(f"{server.name}: it needs a secret: treadle vault set {variable}")
    for key in server.ignored:
        note(f"{server.name}: `{key}` has no meaning here and was left out.")
    note(f"Approve it: treadle mcp approve {server.name}")


@group.command("serve")
async def serve(
    agent: Annotated[
        list[str] | None,
        Option("-a", "--agent", metavar="AGENT", help="Offer only this agent. Repeatable. Default: all agents."),
    ] = None,
) -> int:
    """Offer the agents of the home as tools, to an MCP client on standard input and output."""
    _require_extra()
    from treadle.api.engine import create_engine
    from treadle.surfaces.mcp.stdio import serve_stdio

    home, only = current_home(), tuple(agent or ())
    for name in only:
        home.agent(name)  # raises UnknownAgent
    async with open_home(create_engine(home=home), home) as access:  # or the process that owns the home
        await serve_stdio(access.client, home, only)
    return 0


# ── Approving ──


async def _approve(
    entry: ServerEntry,
    *,
    yes: bool,
    json: bool,
    is_new: bool = False,
    found: Any = None,
    consent: Consent = NO_CONSENT,
) -> int:
    from treadle.home.mcp_admin import approve_server
    from treadle.home.mcp_approvals import HomeApprovals
    from treadle.surfaces.cli.mcp_view import describe_changes, describe_inspection

    if is_new:
        _require_extra(f"The entry {entry.name} is stored.")
    try:
        found = found or await _inspect(entry, consent=consent)
    except UsageError as error:
        if not is_new:
            raise
        again = f"`{make_command('approve', entry)}` tries again; `treadle mcp remove {entry.name}` removes it."
        raise UsageError(f"{str(error).rstrip('.')}. The entry is stored. {again}") from None
    if not yes:
        width = measure_terminal(sys.stderr).columns
        for line in (
            *describe_inspection(entry, found),
            *describe_changes(entry.name, compare_tools(entry.tools, found.tools), width),
        ):
            print(line, file=sys.stderr, flush=True)
        if not Prompt.is_possible():
            raise UsageError(
                f"The MCP server `{entry.name}` needs a confirmation, and there is no terminal to ask at. "
                f"Read what is above, then: {make_command('approve', entry)}{consent.flags} --yes"
            )
        if not await ask_yes_or_no(f"Let agents use {entry.name} with these tools, as they are?"):
            note(f"{entry.name} was not approved. Its tools are not offered to agents.")
            return FAILED
    approve_server(HomeApprovals(configured_home()), entry, found)
    if json:
        print_json(make_server_view(find_entry(configured_home(), entry.name, entry.agent)))
    else:
        note(f"Approved {entry.name} with {format_count(len(found.tools), 'tool')}.")
        note(f"Let an agent use them: `tools: ['{entry.name}__*']` in its file.")
    return 0


async def _inspect(
    entry: ServerEntry, show: Callable[[str], Awaitable[None]] | None = None, consent: Consent = NO_CONSENT
) -> Any:
    """Connect to a server. Raise UsageError if it cannot be used."""
    _require_extra()
    from treadle.home.mcp_admin import inspect_server
    from treadle.home.mcp_approvals import HomeApprovals

    try:
        return await inspect_server(HomeApprovals(configured_home()), entry, show, consent)
    except ToolError as error:
        said = str(error)
        raise UsageError(f"{said[:1].upper()}{said[1:]}") from None


def _require_extra(before: str = "") -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise UsageError(f"{before} {INSTALL}".strip())
