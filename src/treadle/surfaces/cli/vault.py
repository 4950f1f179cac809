"""`treadle vault`: secrets in, grants to and fro; a value never comes out again."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from getpass import getpass
from itertools import product

from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.operations.vault import secret_view
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json
from treadle.vault.names import check_name
from treadle.vault.store import EVERY, Secret, SecretGrant, VaultStore


async def set_secret(
    name: str, value_given: bool, agents: Sequence[str], tools: Sequence[str], force: bool, json: bool
) -> int:
    if value_given:
        raise UsageError(
            "A value is not taken from the command line: other users and the shell's history would see it, and may "
            f"have seen this one. Leave it out to be asked for it, or pipe it in: treadle vault set {name} < FILE"
        )
    check_name(name)
    grants = _grants(agents, tools)
    value = _ask(name) if sys.stdin.isatty() else _read(name)
    with closing(_store()) as store:
        is_new = store.put(name, value, grants, forced=force)
        secret = _find(store, name)
        place = store.key_place()
    if json:
        print_json(secret_view(secret))
        return 0
    note(f"{name} is {'kept' if is_new else 'changed'}, encrypted with the key in {place}; {_granted(secret)}")
    if not secret.grants:
        note(f"let an agent use it with: treadle vault grant {name} --agent AGENT")
    return 0


async def list_secrets(json: bool) -> int:
    with closing(_store()) as store:
        secrets = store.inventory()
        path = store.path
    if json:
        for secret in secrets:
            print_json(secret_view(secret))
    elif secrets:
        head = ("SECRET", "CREATED", "CHANGED", "GRANTED TO")
        rows = [
            (secret.name, _date(secret.created), _date(secret.changed), _grantees(secret) or "nobody")
            for secret in secrets
        ]
        print_table(head, rows)
    else:
        note(f"no secrets yet in {path}")
    return 0


async def remove_secret(name: str, json: bool) -> int:
    with closing(_store()) as store:
        store.remove(name)
    if json:
        print_json({"name": name, "removed": True})
    else:
        note(f"{name} is removed")
    return 0


async def grant_secret(name: str, agents: Sequence[str], tools: Sequence[str], json: bool) -> int:
    if not agents:
        raise UsageError(f"Say which agent may use {name}: --agent NAME; --agent '*' means every agent.")
    with closing(_store()) as store:
        store.grant(name, _grants(agents, tools))
        _show(_find(store, name), json)
    if not json:
        for line in what_tools_could_do(name, tools or (EVERY,)):
            note(line)
    return 0


async def revoke_secret(name: str, agents: Sequence[str], tools: Sequence[str], json: bool) -> int:
    if not agents and not tools:
        raise UsageError(f"Say from whom or for what {name} is taken back: --agent NAME, --tool NAME, or both.")
    with closing(_store()) as store:
        count = store.revoke(name, agents, tools)
        secret = _find(store, name)
    if not count:
        raise UsageError(f"{name} has no such grant; {_granted(secret)}. Nothing was changed.")
    _show(secret, json)
    return 0


async def rotate_key(json: bool) -> int:
    with closing(_store()) as store:
        count = store.rotate()
        place = store.key_place()
    if json:
        print_json({"secrets": count, "key": place})
    else:
        note(f"{count} secret{'' if count == 1 else 's'} encrypted with a new key, kept in {place}")
    return 0


def _store() -> VaultStore:
    return VaultStore(Home.from_environment(os.environ).path, os.environ)


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
    """The value from a pipe or a file. A single line loses its line end; a key of several lines needs it."""
    try:
        value = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise UsageError(
            f"The value of {name} is not text in UTF-8. Encode it first, for example in base64."
        ) from None
    line = value.removesuffix("\n").removesuffix("\r")
    return value if "\n" in line else line


# ── Words ──


def what_tools_could_do(name: str, tools: Sequence[str]) -> list[str]:
    """What a grant trusts its tools with: the redactor hides what comes back, and nothing else."""
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


def _find(store: VaultStore, name: str) -> Secret:
    return next(secret for secret in store.inventory() if secret.name == name)


def _show(secret: Secret, json: bool) -> None:
    if json:
        print_json(secret_view(secret))
    else:
        note(f"{secret.name}: {_granted(secret)}")


def _granted(secret: Secret) -> str:
    return f"granted to {_grantees(secret)}" if secret.grants else "granted to nobody"


def _grantees(secret: Secret) -> str:
    tools: dict[str, list[str]] = {}
    for grant in secret.grants:
        tools.setdefault(grant.agent, []).append(grant.tool)
    return ", ".join(agent if EVERY in given else f"{agent} ({' '.join(given)})" for agent, given in tools.items())


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
