"""Servers of an `.mcp.json`, as other tools write it. The file is read only when a user imports it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.domain.mcp_servers import WORKSPACE_REF
from treadle.domain.secret_refs import make_secret_ref
from treadle.mcp.entry_secrets import replace_secrets

MAX_BYTES = 1_000_000
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_WORKSPACE = re.compile(
    r"\$\{(?:workspaceFolder|workspaceRoot|workspace|projectRoot|PWD|INIT_CWD)(?::[^}]*)?\}|\$PWD\b"
)
"""The workspace, as other tools write it."""
_OTHER = re.compile(r"[^A-Za-z0-9]+")
TYPES = ("stdio", "http", "streamable-http")
KNOWN = ("command", "args", "env", "cwd", "url", "headers", "type", "timeout")


class ImportedServer(Struct, frozen=True):
    """A server of the file, with its secrets taken out."""

    name: str
    values: dict[str, Any]
    """Its entry for `config.yaml`."""
    secrets: dict[str, str]
    """Secrets to store in the vault, by name."""
    missing: tuple[str, ...] = ()
    """Secrets that the entry refers to and that the file does not have: variables of the environment."""
    ignored: tuple[str, ...] = ()
    """Keys that have no meaning here."""
    problem: str = ""
    """Why it cannot be used here; empty if it can."""


def read_import(file: str) -> list[ImportedServer]:
    """Return the servers of a file. Raise UsageError if it is not one."""
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB. Name an .mcp.json.")
        data: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}. Fix the file.") from None
    content = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    servers: Any = content.get("mcpServers", content.get("servers"))
    if not isinstance(servers, dict):
        raise UsageError(f"{path} has no `mcpServers`. Name an .mcp.json.")
    found: list[ImportedServer] = []
    for name, entry in cast("dict[str, Any]", servers).items():
        if not isinstance(entry, dict):
            raise UsageError(f"{path}: the entry `{name}` is not an object. Fix the file.")
        found.append(_convert(name, cast("dict[str, Any]", entry)))
    return found


def make_server_name(name: str) -> str:
    """Return a name that can be part of the name of a tool."""
    return re.sub(r"_+", "_", _OTHER.sub("_", name)).strip("_")[:32] or "server"


def _convert(name: str, entry: Mapping[str, Any]) -> ImportedServer:
    secrets: dict[str, str] = {}
    missing: list[str] = []
    server = make_server_name(name)
    moved = {key: _name_workspace(value, key) for key, value in entry.items()}
    values = {key: _replace_variables(moved[key], missing) for key in KNOWN if key in entry}
    if "type" in values:
        kind = str(values["type"])
        values["type"] = {"streamableHttp": "http", "streamable_http": "http"}.get(kind, kind)

    def take(place: str, secret: str) -> str:
        stored = f"MCP_{_OTHER.sub('_', f'{server}_{place}').upper()}"[:64]
        secrets[stored] = secret
        return make_secret_ref(stored)

    values = replace_secrets(values, take)
    ignored = [key for key in entry if key not in KNOWN]
    if WORKSPACE_REF in str(values.get("cwd")):
        del values["cwd"]  # no server starts in the workspace
        ignored.append("cwd")
    return ImportedServer(
        name=server,
        values=values,
        secrets=secrets,
        missing=tuple(missing),
        ignored=tuple(ignored),
        problem=_find_problem(values),
    )


def _name_workspace(value: Any, key: str) -> Any:
    """Return a value with a reference to the workspace in place of its path in other tools, and in place of a
    relative path, because other tools start servers in the workspace."""
    match value:
        case str():
            text = _WORKSPACE.sub(WORKSPACE_REF, value)
            if text in (".", "./"):
                return WORKSPACE_REF
            if key in ("args", "cwd") and text.startswith(("./", "../")):
                return f"{WORKSPACE_REF}/{text.removeprefix('./')}"
            is_relative = key == "cwd" and not text.startswith(("/", "~", WORKSPACE_REF, "$"))
            return f"{WORKSPACE_REF}/{text}" if is_relative else text
        case list():
            return [_name_workspace(each, key) for each in cast("list[Any]", value)]
        case dict():
            return {name: _name_workspace(each, key) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _find_problem(values: Mapping[str, Any]) -> str:
    command = str(values.get("command") or "")
    if WORKSPACE_REF in command or ("/" in command and not command.startswith(("/", "~"))):
        return f"its program `{command}` is in the workspace; install it in a folder that no agent works in"
    if values.get("type", "stdio") not in TYPES:
        return f"its transport `{values['type']}` is not supported"
    return "" if values.get("command") or values.get("url") else "it has neither a command nor a url"


def _replace_variables(value: Any, missing: list[str]) -> Any:
    """Return a value with references to secrets in place of variables of the environment, such as `${NAME}`."""

    def refer(found: re.Match[str]) -> str:
        missing.append(found[1])
        return make_secret_ref(found[1])

    match value:
        case str():
            return _VARIABLE.sub(refer, value)
        case list():
            return [_replace_variables(each, missing) for each in cast("list[Any]", value)]
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return {key: _replace_variables(each, missing) for key, each in pairs}
        case _:
            return value
