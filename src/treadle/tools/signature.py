"""The parameters of a function as a JSON object: its schema, its typed decoder, and messages for invalid
arguments."""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, cast, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from treadle.ports.tool import InvalidArguments, ToolContext
from treadle.tools import pydantic

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFERENCE = "#/$defs/"
_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of positional values",
    inspect.Parameter.VAR_KEYWORD: "takes any keyword",
}


def is_tool_name(name: str) -> bool:
    """Return whether providers accept the name of a tool."""
    return _NAME.fullmatch(name) is not None


class Signature:
    """The parameters that a tool's function accepts."""

    def __init__(self, tool_name: str, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        if not is_tool_name(tool_name):
            raise TypeError(
                f"`{tool_name}` is not a valid tool name; choose 1 to 64 letters, digits, dashes and "
                "underscores with @tool(name=...)"
            )
        self._tool_name = tool_name
        parameters = _read_parameters(tool_name, function)
        self._context = [name for name, (hint, _) in parameters.items() if ToolContext in (hint, get_origin(hint))]
        shown = {name: parameter for name, parameter in parameters.items() if name not in self._context}
        arguments = _make_arguments_type(shown, descriptions)
        self.schema = _build_schema(tool_name, arguments, {name: default for name, (_, default) in shown.items()})
        self._decoder = msgspec.json.Decoder(arguments, dec_hook=pydantic.decode)

    def decode(self, arguments: str) -> Struct:
        try:
            return self._decoder.decode(arguments.strip() or "{}")
        except msgspec.ValidationError as error:
            what = _describe_error(str(error))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            what = f"the arguments are not JSON ({error})"
        raise InvalidArguments(f"{what}. {self._describe_parameters()}")

    def keywords(self, arguments: Struct, context: ToolContext) -> dict[str, Any]:
        """Return the keyword arguments for the function."""
        keywords = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
        return keywords | dict.fromkeys(self._context, context)

    def _describe_parameters(self) -> str:
        properties: dict[str, dict[str, Any]] = self.schema["properties"]
        if not properties:
            return f"{self._tool_name} takes no parameters: send {{}}."
        required: list[str] = self.schema["required"]
        listed = (
            f"{name} ({_describe_type(schema)}{', required' if name in required else ''})"
            for name, schema in properties.items()
        )
        return f"{self._tool_name} takes: {', '.join(listed)}."


def _read_parameters(tool_name: str, function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each parameter."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool `{tool_name}`: an annotation cannot be resolved ({error})") from error
    parameters: dict[str, tuple[Any, Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if refused := _REFUSED_KINDS.get(parameter.kind):
            raise TypeError(f"tool `{tool_name}`: parameter `{parameter.name}` {refused}; give each one a name")
        if parameter.name not in hints:
            raise TypeError(
                f"tool `{tool_name}`: parameter `{parameter.name}` has no annotation; say which type it takes"
            )
        parameters[parameter.name] = (hints[parameter.name], parameter.default)
    return parameters


def _make_arguments_type(
    parameters: Mapping[str, tuple[Any, Any]], descriptions: Mapping[str, str]
) -> type[Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, (hint, default) in parameters.items():
        described = _add_description(pydantic.make_readable(hint), descriptions.get(name))
        if default is inspect.Parameter.empty:
            fields.append((name, described))
        else:
            fields.append((name, described, _make_field(default)))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, frozen=True)


def _add_description(hint: Any, description: str | None) -> Any:
    """Return the type with its description, unless it already has one."""
    own = (meta for meta in getattr(hint, "__metadata__", ()) if isinstance(meta, Meta))
    if not description or any(meta.description for meta in own):
        return hint
    return Annotated[hint, Meta(description=description)]


def _make_field(default: Any) -> Any:
    # A factory, because msgspec requires an immutable default and a signature does not.
    return msgspec.field(default_factory=lambda: default)


def _build_schema(tool_name: str, arguments: type[Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema with the object itself at the top, where providers expect it."""
    try:
        schema = msgspec.json.schema(arguments, schema_hook=pydantic.make_schema)
    except TypeError as error:
        reason = str(error).splitlines()[-1]
        raise TypeError(f"tool `{tool_name}`: a parameter's type cannot be read from JSON: {reason}") from error
    definitions = cast("dict[str, Any]", schema["$defs"])
    top = definitions.pop(schema["$ref"].removeprefix(_REFERENCE))
    for definition in (top, *definitions.values()):
        if definition.get("type") == "object":
            definition.pop("title", None)
            if definition.get("additionalProperties") is False:
                del definition["additionalProperties"]  # the decoder refuses unknown fields with a message
    for name, default in defaults.items():
        if default is not inspect.Parameter.empty:
            top["properties"][name] = _simplify_optional(top["properties"][name], default)
    top = _inline_definitions(top, definitions)
    definitions |= pydantic.take_definitions(top)
    return top | ({"$defs": definitions} if definitions else {})


def _inline_definitions(top: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with each definition that is used once in its place: that costs a model fewer tokens."""
    text = msgspec.json.encode((top, definitions)).decode()
    inlined = {f"{_REFERENCE}{name}" for name in definitions if text.count(f'"{_REFERENCE}{name}"') == 1}

    def place(schema: Any) -> Any:
        if isinstance(schema, list):
            return [place(each) for each in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        fields = cast("dict[str, Any]", schema)
        if set(fields) == {"$ref"} and fields["$ref"] in inlined:
            return place(definitions.pop(fields["$ref"].removeprefix(_REFERENCE)))
        return {name: place(value) for name, value in fields.items()}

    placed = place(top)
    for name in [each for each in definitions if f"{_REFERENCE}{each}" not in inlined]:
        definitions[name] = place(definitions[name])
    return placed


def _simplify_optional(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Return the schema of an optional parameter without details that a model does not need: that it may be null,
    and an empty default."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if default is None and len(choices) == 1:
        schema = {key: value for key, value in schema.items() if key != "anyOf"} | choices[0]
    with suppress(TypeError):  # a default that JSON cannot represent is not shown
        shown = msgspec.to_builtins(default)
        schema = {key: value for key, value in schema.items() if key != "default"}
        return schema if shown is None or shown is False or shown in ("", [], {}) else schema | {"default": shown}
    return schema


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────

_PLACED = re.compile(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected (.*?)(?:, got (.*))?", re.DOTALL)
_FIELD = re.compile(r"Object (missing required|contains unknown) field (`.*`)", re.DOTALL)
_TYPE_WORDS = {"integer": "int", "string": "str", "number": "float", "boolean": "bool"}


def _describe_error(error: str) -> str:
    """Return an error of msgspec in terms of the call: `a` must be int, got str."""
    placed = _PLACED.fullmatch(error)
    what, place = (placed[1], placed[2]) if placed else (error, None)
    if field := _FIELD.fullmatch(what):
        inside = f" in `{place}`" if place else ""
        return f"{'missing' if field[1] == 'missing required' else 'unknown'} parameter {field[2]}{inside}"
    subject = f"`{place}`" if place else "the arguments"
    if expected := _EXPECTED.fullmatch(what):
        got = f", got {expected[2]}" if expected[2] else ""
        return f"{subject} must be " + f"{expected[1]}{got}".replace("`", "")
    return f"{subject}: {what[:1].lower()}{what[1:]}"


def _describe_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_describe_type(choice) for choice in schema["anyOf"])
    kind = schema.get("type", "object" if "$ref" in schema else "any")
    if kind == "array" and schema.get("items"):
        return f"array of {_describe_type(schema['items'])}"
    return _TYPE_WORDS.get(kind, kind)
