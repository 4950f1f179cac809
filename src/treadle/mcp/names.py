"""Names of the tools of MCP servers: `server__tool`, unique and accepted by every provider."""

import re
from hashlib import sha256

from treadle.domain.mcp_servers import SEPARATOR

MAX_CHARACTERS = 64
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS = 8


def make_tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for a model. A name that has to be changed or cut ends in a hash."""
    name = f"{server}{SEPARATOR}{_OTHER.sub('_', tool)}"
    if name == f"{server}{SEPARATOR}{tool}" and tool and len(name) <= MAX_CHARACTERS:
        return name
    digest = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: MAX_CHARACTERS - _DIGITS - 1]}_{digest}"


def find_server_name(name: str) -> str | None:
    """Return the server that the name of a tool, or a glob of names, refers to; None if it names no server."""
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator and server else None
