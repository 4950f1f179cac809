"""Entries of MCP servers as `treadle mcp` reads, checks and shows them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treadle.config.yaml_files import to_struct
from treadle.domain.errors import UsageError
from treadle.domain.mcp_servers import McpConnectionView, McpServerSettings, check_server_names
from treadle.home.mcp_entries import ServerEntry
from treadle.mcp.entry_secrets import replace_secrets
from treadle.mcp.start_rules import explain_invalid_start
from treadle.surfaces.terminal.text import measure_terminal

NONE = "-"
"""In a table: nothing."""


def check_entry(name: str, values: dict[str, Any]) -> None:
    """Raise UsageError if an entry is not valid, or holds a secret in plain text."""
    settings = to_struct(values, McpServerSettings, f"the server `{name}`")
    try:
        check_server_names({name: settings})
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    replace_secrets(values, _refuse_secret)


def check_start(name: str, values: dict[str, Any]) -> None:
    """Raise UsageError if the program of an entry can never be started."""
    settings = to_struct(values, McpServerSettings, f"the server `{name}`")
    if reason := explain_invalid_start(settings):
        raise UsageError(f"The server `{name}` was not added: {reason}.")


def _refuse_secret(place: str, secret: str) -> str:
    where = f"Argument {place.removeprefix('arg_')}" if place.startswith("arg_") else place
    raise UsageError(
        f"{where} looks like a secret, and config.yaml is not a place for it. Store it with "
        "`treadle vault set NAME`, and write {{vault:NAME}} in its place."
    )


def parse_pairs(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise UsageError(f"`{each}` does not have the form NAME=VALUE. Add the missing part.")
        pairs[name] = value
    return pairs


def resolve_paths(given: list[str]) -> list[str]:
    return [str(Path(path).expanduser().absolute()) for path in given]


def describe_state(entry: ServerEntry) -> str:
    return {"new": "not approved", "changed": "changed since"}.get(entry.state, entry.state)


def describe_connections(connections: Sequence[McpConnectionView]) -> str:
    return ", ".join(dict.fromkeys(each.state for each in connections)) or NONE


def make_command(verb: str, entry: ServerEntry) -> str:
    return f"treadle mcp {verb} {entry.name}{f' --agent {entry.agent}' if entry.agent else ''}"


def output_width() -> int:
    return measure_terminal(sys.stdout).columns if sys.stdout.isatty() else 100_000
