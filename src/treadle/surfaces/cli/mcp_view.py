"""How `treadle mcp` shows servers and their tools. Everything that a server wrote is shown with a margin, and
hidden characters are revealed."""

from collections.abc import Generator, Mapping
from typing import Any, cast

import msgspec

from treadle.domain.mcp_servers import McpServerSettings
from treadle.home.mcp_admin import Inspection
from treadle.home.mcp_entries import ServerEntry, ToolChanges, describe_target
from treadle.mcp.names import make_tool_name
from treadle.mcp.start_rules import explain_privilege, find_access
from treadle.surfaces.terminal.call_view import quote_lines
from treadle.surfaces.terminal.output import format_count
from treadle.surfaces.terminal.text import reveal_line

MAX_SCHEMA_CHARACTERS = 2000


def describe_entry(entry: ServerEntry, *, is_pinned: bool = False) -> Generator[str]:
    """Yield the settings of a server that decide what runs and with which rights. Values of secrets are not in
    them."""
    settings = entry.settings
    yield f"server   {reveal_line(entry.name)}{f' (of agent {entry.agent})' if entry.agent else ''}"
    yield f"{'address' if settings.is_remote else 'command'}  {reveal_line(describe_target(settings))}"
    for name, values in (("env", settings.env), ("header", settings.headers)):
        for key, value in values.items():
            yield f"{name:<8} {reveal_line(key)}={reveal_line(value)}"
    if not settings.is_remote:
        yield f"network  {'yes' if settings.network else 'no'}"
        yield f"files    {_describe_access(settings, is_pinned=is_pinned)}"
        for name, folders in (("reads", settings.readable), ("writes", settings.writable)):
            if folders:
                yield f"{name:<8} {reveal_line(', '.join(folders))}"
        if settings.cwd is not None:
            yield f"folder   {reveal_line(settings.cwd)}"
    if settings.trusted:
        yield "trusted  yes: its own statements about effects are believed"


def describe_inspection(entry: ServerEntry, found: Inspection) -> Generator[str]:
    yield from describe_entry(entry, is_pinned=bool(found.contents))
    yield f"is       {reveal_line(found.title) or 'unnamed'}, protocol {reveal_line(found.protocol)}"
    yield f"answers  in {found.seconds:.1f} s with {format_count(len(found.tools), 'tool')}"
    if found.allows_write:
        yield "warning  --allow-write: it may write what agents can write, and has more rights than they need"
    for content in found.contents:
        yield f"pinned   {reveal_line(content.place)}, content {content.digest[:16]}"
    if found.confinement:
        yield f"warning  it ran without a sandbox: {found.confinement}"


def describe_changes(server: str, changes: ToolChanges, width: int) -> Generator[str]:
    """Yield every tool that is new or changed, in full, and the names of those that are gone."""
    for tool in changes.added:
        yield from describe_tool(server, tool, width, "new")
    for before, after in changes.changed:
        yield from describe_tool(server, before, width, "before")
        yield from describe_tool(server, after, width, "changed")
    for tool in changes.removed:
        yield f"gone     {make_tool_name(server, str(tool['name']))}"
    if changes.same:
        yield f"         {format_count(changes.same, 'tool')} as approved"


def describe_tool(server: str, tool: Mapping[str, Any], width: int, label: str = "tool") -> Generator[str]:
    """Yield the raw object of a tool: its description and its schema, and all other fields."""
    name = str(tool["name"])
    own = make_tool_name(server, name)
    yield f"{label:<8} {own}{'' if own.endswith(f'__{name}') else f' ({reveal_line(name)})'}"
    yield from quote_lines(str(tool.get("description") or "(no description)"), width)
    for key, value in _as_dict(_as_dict(tool.get("inputSchema")).get("properties")).items():
        text = msgspec.json.encode(value).decode()
        yield from quote_lines(f"{key}: {text[:MAX_SCHEMA_CHARACTERS]}", width)
    others = {key: tool[key] for key in tool if key not in ("name", "description", "inputSchema")}
    if others:
        yield from quote_lines(msgspec.json.encode(others).decode()[:MAX_SCHEMA_CHARACTERS], width)


def _describe_access(settings: McpServerSettings, *, is_pinned: bool) -> str:
    access = find_access(settings, is_pinned=is_pinned)
    text = {
        "none": "it does not see the workspace",
        "read": "it reads the workspace",
        "write": "it writes the workspace",
    }
    privilege = explain_privilege(settings)
    return text[access] + (f", and has {privilege}" if privilege and access != "none" else "")


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
