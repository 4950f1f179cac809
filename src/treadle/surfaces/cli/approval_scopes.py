"""What a reviewer can allow from now on: this call, this program, this folder or this host."""

from glob import escape
from posixpath import dirname, normpath
from urllib.parse import urlsplit

from msgspec import Struct

from treadle.domain.permissions import make_exact_pattern
from treadle.domain.tools import strip_line
from treadle.surfaces.terminal.call_view import decode, describe_rule
from treadle.surfaces.terminal.text import reveal_line

COMMANDS = ("bash", "run_command")


class ApprovalScope(Struct, frozen=True):
    """Calls that a rule would allow."""

    label: str
    pattern: str


def list_scopes(tool: str, arguments: str, pattern: str, workspace: str = "") -> tuple[ApprovalScope, ...]:
    """Return the scopes to offer for a call, the narrowest first. `pattern` is the one that the tool suggests."""
    values = decode(arguments).values or {}
    command, path, url = values.get("command"), values.get("path"), values.get("url")
    found: list[ApprovalScope] = []
    if tool in COMMANDS and isinstance(command, str) and (line := strip_line(command)).isprintable():
        exact = pattern if pattern == escape(line) else make_exact_pattern(line)
        found.append(ApprovalScope("exactly this command", exact))
        found.append(ApprovalScope(f"`{reveal_line(pattern)}`", pattern))
    elif isinstance(path, str) and path:
        clean = normpath(path)
        found.append(ApprovalScope(f"`{tool}` of this file", escape(clean)))
        folder = dirname(clean)
        if folder and not clean.startswith("..") and _is_inside(folder, workspace):
            found.append(ApprovalScope(f"`{tool}` in the folder {reveal_line(folder)}", f"{escape(folder)}/*"))
    elif isinstance(url, str) and (parts := urlsplit(url)).hostname and parts.scheme in ("http", "https"):
        found.append(ApprovalScope("this address", escape(url)))
        host = f"{parts.scheme}://{parts.netloc}"
        found.append(ApprovalScope(f"the host {reveal_line(parts.netloc)}", f"{escape(host)}/*"))
    if pattern not in {scope.pattern for scope in found} or not found:
        found.append(ApprovalScope(describe_rule(tool, pattern), pattern))
    return tuple({scope.pattern: scope for scope in reversed(found)}.values())[::-1]


def _is_inside(folder: str, workspace: str) -> bool:
    """Return whether a folder is part of the workspace. A relative one is."""
    return not folder.startswith("/") or (bool(workspace) and f"{folder}/".startswith(f"{normpath(workspace)}/"))
