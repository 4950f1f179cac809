"""Servers of an `.mcp.json`, as other tools write it. The file is read only when a user imports it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.domain.secret_refs import make_secret_ref

MAX_BYTES = 1_000_000
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|AUTH|CREDENTIAL|COOKIE", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
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


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable or header with this name is probably a secret."""
    return _SECRET.search(name) is not None


def make_server_name(name: str) -> str:
    """Return a name that can be part of the name of a tool."""
    return re.sub(r"_+", "_", _OTHER.sub("_", name)).strip("_")[:32] or "server"


def _convert(name: str, entry: Mapping[str, Any]) -> ImportedServer:
    secrets: dict[str, str] = {}
    missing: list[str] = []
    server = make_server_name(name)
    values: dict[str, Any] = {}
    for key in KNOWN:
        if key not in entry:
            continue
        value = entry[key]
        if key == "type":
            value = {"streamableHttp": "http", "streamable_http": "http"}.get(str(value), value)
        if key in ("env", "headers") and isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            value = {each: _take_secret(server, each, str(text), secrets, missing) for each, text in items}
        values[key] = value
    ignored = tuple(key for key in entry if key not in KNOWN)
    return ImportedServer(server, values, secrets, tuple(missing), ignored)


def _take_secret(server: str, name: str, text: str, secrets: dict[str, str], missing: list[str]) -> str:
    """Return the value for the entry: a reference if it is, or contains, a secret."""
    if _VARIABLE.search(text):
        missing += [found[1] for found in _VARIABLE.finditer(text)]
        return _VARIABLE.sub(lambda found: make_secret_ref(found[1]), text)
    if not is_secret_name(name) or text.startswith("{{vault:") or not text:
        return text
    prefix, _, rest = text.partition(" ")
    is_scheme = prefix.lower() in ("bearer", "basic", "token") and bool(rest)
    secret = f"MCP_{_OTHER.sub('_', f'{server}_{name}').upper()}"[:64]
    secrets[secret] = rest if is_scheme else text
    return f"{prefix} {make_secret_ref(secret)}" if is_scheme else make_secret_ref(secret)
