"""Describes tools in the system message, for models without native tool calls. Small models must understand it
too: the wording was tested with a model of 135M parameters."""

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.domain.models import ToolStyle
from treadle.domain.tools import ToolSpec
from treadle.models.emulated_tools.reply_schema import as_object, find_definitions
from treadle.models.http.wire import encode

_MAX_DEPTH = 3
"""How many levels of nested values are described."""

_HOW_TO_REPLY: dict[ToolStyle, str] = {
    "schema": (
        'Reply with JSON only. To use a tool: {"tool": NAME, "arguments": {...}}. To answer: {"answer": TEXT}. '
        "You may use several tools, one after the other."
    ),
    "fenced": (
        "To use a tool, reply with a block like this, and wait for its result:\n"
        '```json\n{"tool": NAME, "arguments": {...}}\n```\n'
        "To answer, reply in plain text. You may use several tools, one after the other."
    ),
}


def write_instructions(persona: str, tools: Iterable[ToolSpec], style: ToolStyle) -> str:
    """Return the system message: the persona, the tools, and how to reply."""
    described = "You can use these tools:\n" + "\n".join(map(_describe_tool, tools))
    return "\n\n".join(section for section in (persona, described, _HOW_TO_REPLY[style]) if section)


def _describe_tool(tool: ToolSpec) -> str:
    """Return `- name(parameter: type, ...): description`, and a line for each parameter that has a description."""
    fields = _describe_fields(tool.schema, find_definitions(tool), _MAX_DEPTH)
    lines = [f"- {tool.name}({fields}): {_one_line(tool.description)}"]
    for name, schema in as_object(tool.schema.get("properties")).items():
        if description := as_object(schema).get("description"):
            lines.append(f"  {name}: {_one_line(description)}")
    return "\n".join(lines)


def _describe_fields(schema: Mapping[str, Any], defined: Mapping[str, Any], depth: int) -> str:
    required = schema.get("required", ())
    fields: list[str] = []
    for name, value in as_object(schema.get("properties")).items():
        type_, default = _describe_type(value, defined, depth), as_object(value).get("default")
        if name in required:
            fields.append(f"{name}: {type_}")
        else:
            fields.append(f"{name}?: {type_}" if default is None else f"{name}: {type_} = {_encode_text(default)}")
    return ", ".join(fields)


def _describe_type(schema: Any, defined: Mapping[str, Any], depth: int) -> str:
    """Return a type in TypeScript notation, which models know well."""
    schema = as_object(schema)
    if "$ref" in schema:
        schema, depth = as_object(defined.get(schema["$ref"])), depth - 1
    if depth < 0:
        return "any"
    if "enum" in schema:
        return " | ".join(map(_encode_text, schema["enum"]))
    if "const" in schema:
        return _encode_text(schema["const"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_describe_type(choice, defined, depth) for choice in choices))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(_describe_type(item, defined, depth - 1) for item in schema['prefixItems'])}]"
        case "array" if "items" in schema:
            items = _describe_type(schema["items"], defined, depth - 1)
            return f"({items})[]" if " | " in items else f"{items}[]"
        case "object" if "properties" in schema:
            return f"{{{_describe_fields(schema, defined, depth - 1)}}}"
        case str(name):
            return name
        case None:
            return "any"
        case names:
            return " | ".join(names)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _encode_text(value: Any) -> str:
    return encode(value).decode()
