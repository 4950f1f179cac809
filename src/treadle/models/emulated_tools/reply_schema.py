"""The JSON Schema that a reply is held to: a call of one of the tools, or an answer.

It holds the shape of the arguments. What servers cannot make a grammar of is left out, or they would refuse the
whole request for it; the engine checks arguments against the tool's own schema in any case."""

from collections.abc import Iterable
from typing import Any, cast

from treadle.domain.tools import ToolSpec

_KEPT_KEYWORDS = frozenset(
    ("type", "enum", "const", "required", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
)
_COUNT_KEYWORDS = frozenset(("minItems", "maxItems", "minLength", "maxLength"))
_MAX_COUNT = 100
"""Grammars spell repetitions out, and servers refuse those that grow too large."""
_CHOICE_KEYWORDS = ("anyOf", "oneOf", "allOf")


def build_reply_schema(tools: Iterable[ToolSpec]) -> dict[str, Any]:
    """The schema of a reply that may call these tools."""
    answer = _closed_object({"answer": {"type": "string"}})
    defined: dict[str, Any] = {}
    calls = [
        _closed_object({"tool": {"const": tool.name}, "arguments": _arguments_schema(tool, defined)})
        for tool in tools
    ]
    schema = {"oneOf": [*calls, answer]} if calls else answer
    return schema | {"$defs": defined} if defined else schema


def find_definitions(tool: ToolSpec) -> dict[str, Any]:
    """What the schema of a tool defines, by the reference to it."""
    return {
        f"#/{section}/{name}": schema
        for section in ("$defs", "definitions")
        for name, schema in as_object(tool.schema.get(section)).items()
    }


def as_object(schema: Any) -> dict[str, Any]:
    """A schema; {} for one that is just true or false."""
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _arguments_schema(tool: ToolSpec, defined: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a tool. What its schema defines joins `defined`, under names that no other tool has."""
    found = find_definitions(tool)
    names = {reference: f"{tool.name}.{number}" for number, reference in enumerate(found)}
    for reference, schema in found.items():
        defined[names[reference]] = _simplify_schema(schema, names)
    shape = _simplify_schema(tool.schema, names)
    if "$ref" in shape or any(choice in shape for choice in _CHOICE_KEYWORDS):
        return shape
    closed: dict[str, Any] = {"properties": {}, "additionalProperties": False}
    return closed | shape | {"type": "object"}


def _simplify_schema(schema: Any, names: dict[str, str]) -> dict[str, Any]:
    """What a grammar can hold a value to; {} where that is nothing."""
    schema = as_object(schema)
    if "$ref" in schema:
        name = names.get(schema["$ref"])
        return {} if name is None else {"$ref": f"#/$defs/{name}"}
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _KEPT_KEYWORDS or (key in _COUNT_KEYWORDS and value <= _MAX_COUNT):
            shape[key] = value
        elif key == "properties":
            shape[key] = {name: _simplify_schema(each, names) for name, each in as_object(value).items()}
        elif key == "additionalProperties":
            shape[key] = _simplify_schema(value, names) if isinstance(value, dict) else value
        elif key == "items" and isinstance(value, dict):
            shape[key] = _simplify_schema(value, names)
        elif key == "prefixItems" or (key in _CHOICE_KEYWORDS and "properties" not in schema):
            # Choices beside properties say which of these go together: no grammar can.
            shape[key] = [_simplify_schema(each, names) for each in value]
    return shape
