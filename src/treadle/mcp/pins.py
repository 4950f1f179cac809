"""Pins: the servers that an operator has approved, each with its entry and the raw objects of its tools.

They are stored in `mcp/` of the home, one file per server. What a model is offered comes from these files alone, so
no run waits for a connection, and nothing that a server changes is offered before it is approved again."""

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.errors import ConfigError
from treadle.domain.mcp_servers import Consent, McpServerSettings
from treadle.mcp.approval_advice import ApprovalAdvice
from treadle.mcp.start_rules import explain_privilege, find_access, needs_write_consent

FOLDER = "mcp"
MAX_BYTES = 8_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class PinnedContent(Struct, frozen=True):
    """A file or folder with code of a server, in a place that a run can write."""

    place: str
    digest: str
    """Hash of its content. The server runs from a private copy with this hash."""


class Pin(Struct, frozen=True, omit_defaults=True):
    """What was approved of a server."""

    server: str
    entry: str
    """Hash of its settings."""
    tools: tuple[dict[str, Any], ...] = ()
    """The raw objects of its tools, as the server sent them."""
    agent: str = ""
    """The agent whose file configures it; empty for a server of the home."""
    title: str = ""
    """How the server describes itself: its name and version."""
    approved: float = 0.0
    """When it was approved, in seconds since 1970."""
    allows_write: bool = False
    """The approval says that its program may write the workspace although it has secrets or the network."""
    contents: tuple[PinnedContent, ...] = ()
    """Code that is pinned by content."""


def hash_entry(server: McpServerSettings) -> str:
    """Return the hash of the settings that decide what runs and with which rights. Changes of the others need no
    new approval."""
    if server.is_remote:
        return _hash_settings(server)
    return sha256(f"{_hash_settings(server)} workspace: {find_access(server)}".encode()).hexdigest()


def _hash_settings(server: McpServerSettings) -> str:
    """Return the hash of the settings without the access to the workspace."""
    relevant = (
        *(server.command, server.args, server.env, server.cwd, server.url, server.headers),
        *(server.network, server.readable, server.writable, server.oauth),
    )
    return sha256(msgspec.json.encode(relevant, order="sorted")).hexdigest()


def hash_tool(tool: Mapping[str, Any]) -> str:
    """Return the hash of the raw object of a tool."""
    return sha256(msgspec.json.encode(tool, order="sorted")).hexdigest()


class PinFolder:
    """Reads and writes pins. Nothing is created before a server is approved."""

    def __init__(self, home: Path, scope: str = "") -> None:
        self._home = home
        self._folder = home / FOLDER / scope
        self._cache: dict[Path, tuple[tuple[int, int, int], Pin]] = {}

    def path(self, server: str, agent: str = "") -> Path:
        if not _NAME.fullmatch(server) or (agent and not _NAME.fullmatch(agent)):
            raise ConfigError(f"`{server}` is not the name of an MCP server. Fix the name.")
        return self._folder / (f"agents/{agent}/{server}.json" if agent else f"{server}.json")

    def read(self, server: str, agent: str = "") -> Pin | None:
        """Return the pin of a server, or None. Raise ConfigError if its file is damaged."""
        path = self.path(server, agent)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                found = os.fstat(file.fileno())
                key = (found.st_ino, found.st_mtime_ns, found.st_size)
                if (known := self._cache.get(path)) is not None and known[0] == key:
                    return known[1]
                if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                    raise ConfigError(
                        f"{path}: it is not a file of at most {MAX_BYTES // 1_000_000} MB. Delete it."
                    )
                pin = msgspec.json.decode(file.read(), type=Pin)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ConfigError(f"{path}: it cannot be read: {error.strerror}. Check its permissions.") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise ConfigError(
                f"{path}: the file is damaged, so the server `{server}` counts as not approved. "
                f"Delete it, and approve the server again."
            ) from None
        if (pin.server, pin.agent) != (server, agent):
            raise ConfigError(f"{path}: it is the pin of another server. Delete it and approve the server again.")
        self._cache[path] = (key, pin)
        return pin

    def write(self, pin: Pin) -> None:
        """Store the pin of a server, replacing an earlier one."""
        path = self.path(pin.server, pin.agent)
        content = msgspec.json.format(msgspec.json.encode(pin), indent=1)
        if len(content) > MAX_BYTES:
            raise ConfigError(
                f"The server `{pin.server}` was not approved: its tools take {len(content) // 1_000_000} MB. "
                "Select fewer with `tools:` in its entry."
            )
        try:
            for folder in (self._home, *reversed(path.relative_to(self._home).parents[:-1])):
                (self._home / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # private to this user
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except BaseException:
                with suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise ConfigError(f"{path}: it cannot be written: {error.strerror}. Check its permissions.") from None

    def remove(self, server: str, agent: str = "") -> bool:
        """Remove the pin of a server. Return False if there was none."""
        try:
            self.path(server, agent).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


def list_pinned_contents(home: Path) -> frozenset[str]:
    """Return the hashes of the copies of code that any approval in a home refers to."""
    found: set[str] = set()
    for path in (home / FOLDER).rglob("*.json"):
        with suppress(OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            found |= {each.digest for each in msgspec.json.decode(path.read_bytes(), type=Pin).contents}
    return frozenset(found)


def explain_refusal(settings: McpServerSettings, pin: Pin | None, advice: ApprovalAdvice) -> str:
    """Return why no tool of a server can be used, or an empty text if its tools can be used."""
    name = advice.server
    if not settings.enabled:
        return f"The MCP server `{name}` is disabled. Set `enabled: true` in its entry."
    if pin is None:
        return f"The MCP server `{name}` is not approved. Approve it: {advice.tell_first()}"
    if pin.entry == hash_entry(settings) and needs_write_consent(settings) and not pin.allows_write:
        privilege = explain_privilege(settings)
        return (
            f"The MCP server `{name}` may write the workspace and has {privilege}, which its approval does not "
            f"allow. Approve that: {advice.tell(Consent(write=True))}"
        )
    if pin.entry != hash_entry(settings):
        return f"The entry of the MCP server `{name}` has changed. Approve it again: {advice.tell_again()}"
    return ""
