"""`treadle vault`: secrets and their grants. A value is never printed."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from getpass import getpass
from itertools import product
from typing import Annotated

from treadle.config.home import DEFAULT_AGENT
from treadle.domain.errors import UsageError
from treadle.domain.suggestions import find_closest
from treadle.operations.vault import secret_view
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import configured_home, current_home
from treadle.surfaces.terminal.output import (
    Column,
    alert,
    format_count,
    note,
    print_json,
    print_result,
    print_table,
    when,
)
from treadle.vault.names import check_name
from treadle.vault.store import EVERY, Secret, SecretGrant, VaultStore

Name = Annotated[str, Argument(metavar="NAME", help="The name of the secret, for example GITHUB_TOKEN.")]
Agents = Annotated[list[str] | None, Option("--agent", metavar="AGENT", help="An agent or a glob. Repeatable.")]
Tools = Annotated[
    list[str] | None,
    Option("--tool", metavar="TOOL", help="A tool or a glob. Repeatable. Default: every tool."),
]
group = Group("vault")


@group.command("set")
async def set_secret(
    name: Name,
    value: Annotated[list[str] | None, Argument(hidden=True, metavar="")] = None,
    agent: Agents = None,
    tool: Tools = None,
    force: Annotated[bool, Option("--force", help="Accept a value of fewer than 8 characters.")] = False,
    json: Json = False,
) -> int:
    """Store a secret. The value is read from a prompt or from standard input."""
    if value:
        raise UsageError(
            "A value is not accepted on the command line: other users and the shell history would see it, and may "
            f"have seen this one. Leave it out to be prompted, or pipe it in: treadle vault set {name} < FILE"
        )
    check_name(name)
    grants = _grants(agent or (), tool or ())
    secret_value = _ask(name) if sys.stdin.isatty() else _read(name)
    with closing(_store()) as store:
        is_new = store.put(name, secret_value, grants, forced=force)
        secret = _find(store, name)
        place = store.key_place()
    verb = "Stored" if is_new else "Changed"
    said = f"{verb} {name}, encrypted with the key in {place}; {_describe_grants(secret)}."
    print_result(secret_view(secret), said, json=json)
    if not json:
        _warn_about_unknown(agent or (), tool or ())
    if not secret.grants and not json:
        note(f"Let an agent use it: treadle vault grant {name} --agent AGENT")
    return 0


@group.command("list")
async def list_secrets(json: Json = False) -> int:
    """List the secrets and their grants. Values are never printed."""
    with closing(_store()) as store:
        secrets = store.inventory()
        path = store.path
    if json:
        for secret in secrets:
            print_json(secret_view(secret))
    elif secrets:
        head = ("SECRET", Column("CREATED", is_optional=True), "CHANGED", Column("GRANTED TO", shrinks_to=16))
        print_table(head, [_row(secret) for secret in secrets])
    else:
        note(f"No secrets yet in {path}.")
    return 0


@group.command("remove")
async def remove_secret(name: Name, json: Json = False) -> int:
    """Delete a secret and its grants."""
    with closing(_store()) as store:
        store.remove(name)
    print_result({"name": name, "removed": True}, f"Removed {name}.", json=json)
    return 0


@group.command("grant")
async def grant_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> int:
    """Grant a secret to agents, for every tool or for some tools."""
    if not agent:
        raise UsageError(f"Name the agent that may use {name}: --agent NAME; --agent '*' means every agent.")
    _refuse_misspelt(agent)
    with closing(_store()) as store:
        store.grant(name, _grants(agent, tool or ()))
        secret = _find(store, name)
    print_result(secret_view(secret), f"{name} is {_describe_grants(secret)}.", json=json)
    if not json:
        _warn_about_unknown(agent, tool or ())
        for line in describe_grant_risks(name, tool or (EVERY,)):
            note(line)
    return 0


@group.command("revoke")
async def revoke_secret(name: Name, agent: Agents = None, tool: Tools = None, json: Json = False) -> int:
    """Revoke grants of a secret: those of an agent, those of a tool, or both."""
    if not agent and not tool:
        raise UsageError(f"Name the grants of {name} to revoke: --agent NAME, --tool NAME, or both.")
    with closing(_store()) as store:
        count = store.revoke(name, agent or (), tool or ())
        secret = _find(store, name)
    if not count:
        raise UsageError(f"{name} has no such grant: it is {_describe_grants(secret)}. Nothing was changed.")
    print_result(secret_view(secret), f"{name} is {_describe_grants(secret)}.", json=json)
    return 0


@group.command("rotate")
async def rotate_key(json: Json = False) -> int:
    """Encrypt all secrets with a new key."""
    with closing(_store()) as store:
        count = store.rotate()
        place = store.key_place()
    said = f"Encrypted {format_count(count, 'secret')} with a new key in {place}."
    print_result({"secrets": count, "key": place}, said, json=json)
    return 0


def _store() -> VaultStore:
    return VaultStore(current_home().path, os.environ)


# ── The value ──


def _ask(name: str) -> str:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends the question, not only the event loop
    try:
        value = getpass(f"Value of {name} (not shown): ")
        if getpass("Once more: ") != value:
            raise UsageError("The two values differ. Nothing was changed; try again.")
    except EOFError:
        raise UsageError(f"No value was given for {name}. Nothing was changed.") from None
    return value


def _read(name: str) -> str:
    """Read a value from a pipe or a file. A single line loses its line end; a key of several lines needs it."""
    try:
        value = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise UsageError(
            f"The value of {name} is not text in UTF-8. Encode it first, for example in base64."
        ) from None
    line = value.removesuffix("\n").removesuffix("\r")
    return value if "\n" in line else line


# ── Words ──


def describe_grant_risks(name: str, tools: Sequence[str]) -> list[str]:
    """Return what a tool could do with a granted secret. The redactor covers only text that comes back."""
    given = "every tool" if EVERY in tools else ", ".join(f"`{tool}`" for tool in tools)
    lines = [
        f"{given} of that agent gets the value of {name} when it runs. Text that comes back is redacted in its "
        "usual encodings. What the tool itself does with the value is not limited."
    ]
    if EVERY in tools or {"bash", "run_command"} & set(tools):
        lines.append(
            f"`bash` has it as ${name}: a command could write it to a file, send it anywhere if the network of the "
            "sandbox is on, or print it transformed (reversed, encrypted, a letter at a time), which no redactor "
            "recognises. Set approvals for `bash` to ask, and keep the network off."
        )
    if EVERY in tools or {"web_fetch", "write_file", "edit_file"} & set(tools):
        lines.append("A tool that takes a URL or a text can put the value there: into a request or into a file.")
    if EVERY in tools:
        lines.append("Grant it to one tool with --tool NAME if one is enough.")
    return lines


def _grants(agents: Sequence[str], tools: Sequence[str]) -> list[SecretGrant]:
    if tools and not agents:
        raise UsageError("A grant for a tool is a grant to an agent: add --agent NAME; --agent '*' is every agent.")
    return [SecretGrant(agent, tool) for agent, tool in product(agents, tools or (EVERY,))]


def _refuse_misspelt(agents: Sequence[str]) -> None:
    """Raise UsageError for the name of an agent that does not exist and is almost that of another."""
    known = {DEFAULT_AGENT, *current_home().agents()}
    for agent in agents:
        if not any(fnmatchcase(each, agent) for each in known) and (near := find_closest(agent, sorted(known))):
            raise UsageError(
                f"This home has no agent `{agent}`. Did you mean `{near}`? Nothing was granted. If a program "
                f"defines `{agent}`, use a pattern that matches it, such as `{agent[:-1]}?`."
            )


def _warn_about_unknown(agents: Sequence[str], tools: Sequence[str]) -> None:
    """Print what no agent or tool is called. A program may define them in code, so the grant stands."""
    known = {DEFAULT_AGENT, *current_home().agents()}
    for agent in agents:
        if not any(fnmatchcase(each, agent) for each in known):
            alert(f"This home has no agent `{agent}`: the grant takes effect when there is one.")
    if tools:
        from treadle.home.agent_checks import find_unknown_tools

        for problem in find_unknown_tools(configured_home(), tools):
            alert(f"The grant takes effect when there is such a tool: {problem}")


def _find(store: VaultStore, name: str) -> Secret:
    return next(secret for secret in store.inventory() if secret.name == name)


def _describe_grants(secret: Secret) -> str:
    return f"granted to {_list_grantees(secret)}" if secret.grants else "granted to no agent"


def _list_grantees(secret: Secret) -> str:
    tools: dict[str, list[str]] = {}
    for grant in secret.grants:
        tools.setdefault(grant.agent, []).append(grant.tool)
    return ", ".join(agent if EVERY in given else f"{agent} ({' '.join(given)})" for agent, given in tools.items())


def _row(secret: Secret) -> tuple[str, ...]:
    created, changed = (when(datetime.fromtimestamp(at, UTC)) for at in (secret.created, secret.changed))
    return secret.name, created, changed, _list_grantees(secret) or "no agent"
