"""The JSON Schema that constrains a reply: a call of one of the tools, or an answer.

It covers the structure of the arguments. Keywords that servers cannot turn into a grammar are left out, because
servers would refuse the whole request. The engine validates arguments against the tool's own schema in any
case."""

from collections.abc import Iterable
from typing import Any, cast

from treadle.domain.tools import ToolSpec

_KEPT_KEYWORDS = frozenset(
    ("type", "enum", "const", "required", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
)
_COUNT_KEYWORDS = frozenset(("minItems", "maxItems", "minLength", "maxLength"))
_MAX_COUNT = 100
"""Grammars expand repetitions, and servers refuse grammars that grow too large."""
_CHOICE_KEYWORDS = ("anyOf", "oneOf", "allOf")


def build_reply_schema(tools: Iterable[ToolSpec], *, must_call: bool = False) -> dict[str, Any]:
    """Return the schema of a reply that may, or must, call one of these tools."""
    answer = _make_closed_object({"answer": {"type": "string"}})
    defined: dict[str, Any] = {}
    calls = [
        _make_closed_object({"tool": {"const": tool.name}, "arguments": _make_arguments_schema(tool, defined)})
        for tool in tools
    ]
    schema = {"oneOf": calls if must_call else [*calls, answer]} if calls else answer
    return schema | {"$defs": defined} if defined else schema


def find_definitions(tool: ToolSpec) -> dict[str, Any]:
    """Return the definitions in the schema of a tool, by their reference."""
    return {
        f"#/{section}/{name}": schema
        for section in ("$defs", "definitions")
        for name, schema in as_object(tool.schema.get(section)).items()
    }


def as_object(schema: Any) -> dict[str, Any]:
    """Return a schema, or {} for a boolean schema."""
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def _make_closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _make_arguments_schema(tool: ToolSpec, defined: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments. Its definitions are added to `defined` under names that are unique
    to the tool."""
    definitions = find_definitions(tool)
    names = {reference: f"{tool.name}.{number}" for number, reference in enumerate(definitions)}
    for reference, schema in definitions.items():
        defined[names[reference]] = _simplify_schema(schema, names)
    simplified = _simplify_schema(tool.schema, names)
    if "$ref" in simplified or any(choice in simplified for choice in _CHOICE_KEYWORDS):
        return simplified
    closed: dict[str, Any] = {"properties": {}, "additionalProperties": False}
    return closed | simplified | {"type": "object"}


def _simplify_schema(schema: Any, names: dict[str, str]) -> dict[str, Any]:
    """Return the part of a schema that a grammar can enforce; {} if none."""
    schema = as_object(schema)
    if "$ref" in schema:
        name = names.get(schema["$ref"])
        return {} if name is None else {"$ref": f"#/$defs/{name}"}
    simplified: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _KEPT_KEYWORDS or (key in _COUNT_KEYWORDS and value <= _MAX_COUNT):
            simplified[key] = value
        elif key == "properties":
            simplified[key] = {name: _simplify_schema(each, names) for name, each in as_object(value).items()}
        elif key == "additionalProperties":
            simplified[key] = _simplify_schema(value, names) if isinstance(value, dict) else value
        elif key == "items" and isinstance(value, dict):
            simplified[key] = _simplify_schema(value, names)
        elif key == "prefixItems" or (key in _CHOICE_KEYWORDS and "properties" not in schema):
            # Choices next to properties say which properties go together. A grammar cannot express that.
            simplified[key] = [_simplify_schema(each, names) for each in value]
    return simplified
