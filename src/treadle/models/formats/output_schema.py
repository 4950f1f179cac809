"""The output schema in the form in which providers accept it. The schema is never changed, except that a root that
is a reference is replaced by what it refers to.

A schema that a format cannot express is not sent: it is in the prompt in any case. It is examined once per run."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from treadle.models.http.wire import encode
from treadle.ports.model import Preamble

NAME: Final = "answer"
_DEFINITIONS: Final = ("$defs", "definitions")
_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_STRING_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_COMMON_KEYWORDS: Final = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref")
) | frozenset((*_DEFINITIONS, "description", "title", "format"))


class SchemaRules(Struct, frozen=True, kw_only=True):
    """What a provider accepts in a schema to which it constrains a reply. Every object must be closed."""

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool
    """Every property must be required."""
    typed_constants: bool
    """`enum` and `const` need a `type`."""
    recursion: bool
    min_items: int | None = None
    """Highest `minItems`. None: any."""
    max_depth: int
    max_properties: int | None = None
    max_constants: int | None = None
    max_optional: int | None = None
    """Most properties that are not required."""
    max_unions: int | None = None


OPENAI: Final = SchemaRules(
    keywords=_COMMON_KEYWORDS
    | frozenset(("pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
    | frozenset(("minItems", "maxItems")),
    formats=_STRING_FORMATS,
    all_required=True,
    typed_constants=True,
    recursion=True,
    max_depth=10,
    max_properties=5000,
    max_constants=1000,
)
"""Schemas for `strict: true`. Others are sent with `strict: false`."""
ANTHROPIC: Final = SchemaRules(
    keywords=_COMMON_KEYWORDS | frozenset(("allOf", "minItems")),
    formats=_STRING_FORMATS | {"uri"},
    all_required=False,
    typed_constants=False,
    recursion=False,
    min_items=1,
    max_depth=30,
    max_optional=24,
    max_unions=16,
)
"""Schemas that Anthropic accepts. It has no form for others."""


def encode_chat_option(preamble: Preamble) -> bytes:
    """Return the option of a `chat_completions` request with a leading comma, or b"" if it cannot be sent."""
    return preamble.encode_as("chat_completions:output", _encode_chat_option)


def encode_responses_option(preamble: Preamble) -> bytes:
    """Return the option of a `responses` request with a leading comma, or b"" if it cannot be sent."""
    return preamble.encode_as("responses:output", _encode_responses_option)


def encode_anthropic_format(preamble: Preamble) -> bytes:
    """Return the `format` of `output_config` in an `anthropic_messages` request, or b"" if it cannot be sent."""
    return preamble.encode_as("anthropic_messages:output", _encode_anthropic_format)


def _encode_chat_option(preamble: Preamble) -> bytes:
    described = _describe_for_openai(preamble)
    if described is None:
        return b""
    return b',"response_format":' + encode({"type": "json_schema", "json_schema": described})


def _encode_responses_option(preamble: Preamble) -> bytes:
    described = _describe_for_openai(preamble)
    if described is None:
        return b""
    return b',"text":' + encode({"format": {"type": "json_schema", **described}})


def _encode_anthropic_format(preamble: Preamble) -> bytes:
    schema = find_object_schema(preamble.output or {})
    if schema is None or not fits_rules(schema, ANTHROPIC):
        return b""
    return encode({"type": "json_schema", "schema": schema})


def _describe_for_openai(preamble: Preamble) -> dict[str, Any] | None:
    schema = find_object_schema(preamble.output or {})
    if schema is None:
        return None
    return {"name": NAME, "schema": schema, "strict": fits_rules(schema, OPENAI)}


def find_object_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema whose root is an object, or None for a list, a union or another value.

    A root that refers to a definition is replaced by the definition."""
    root = dict(schema)
    reference = root.pop("$ref", None)
    if reference is not None:
        definition = _find_definition(schema, reference)
        if definition is None or set(root) - set(_DEFINITIONS) or not definition.keys().isdisjoint(root):
            return None
        root = {**definition, **_keep_used_definitions(root, definition, reference)}
    if root.get("type") != "object" or any(choice in root for choice in _CHOICES):
        return None
    return root


def _keep_used_definitions(sections: dict[str, Any], root: dict[str, Any], reference: str) -> dict[str, Any]:
    """Return the definitions without the one that has become the root, unless another schema refers to it."""
    if encode(reference) in msgspec.json.encode((sections, root)):
        return sections
    section, _, name = reference.removeprefix("#/").partition("/")
    kept = {key: value for key, value in sections[section].items() if key != name}
    return {**sections, section: kept} if kept else {key: sections[key] for key in sections if key != section}


def _find_definition(schema: Mapping[str, Any], reference: object) -> dict[str, Any] | None:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    section, _, name = reference.removeprefix("#/").partition("/")
    if section not in _DEFINITIONS or "/" in name:
        return None
    return _as_object(_as_object(schema.get(section)).get(name)) or None


def fits_rules(schema: dict[str, Any], rules: SchemaRules) -> bool:
    """Return whether a provider with these rules accepts a schema as it is."""
    examination = _Examination(schema, rules)
    return examination.accepts(schema, 0) and examination.is_within_limits()


class _Examination:
    """Walks through a schema and counts what is limited."""

    def __init__(self, root: dict[str, Any], rules: SchemaRules) -> None:
        self._root = root
        self._rules = rules
        self._properties = self._optional = self._constants = self._unions = 0

    def accepts(self, schema: Any, depth: int) -> bool:
        if not isinstance(schema, dict) or depth > self._rules.max_depth:
            return False
        fields = cast("dict[str, Any]", schema)
        if not fields.keys() <= self._rules.keywords or not self._accepts_definitions(fields, depth):
            return False
        if "$ref" in fields:
            return len(fields) == 1 and self._accepts_reference(fields["$ref"])
        if not self._accepts_values(fields) or not self._accepts_kind(fields, depth):
            return False
        choices = [choice for name in ("anyOf", "allOf") for choice in fields.get(name, ())]
        return all(self.accepts(choice, depth) for choice in choices)

    def is_within_limits(self) -> bool:
        rules = self._rules
        counts = (
            (self._properties, rules.max_properties),
            (self._optional, rules.max_optional),
            (self._constants, rules.max_constants),
            (self._unions, rules.max_unions),
        )
        return all(limit is None or count <= limit for count, limit in counts)

    def _accepts_definitions(self, fields: dict[str, Any], depth: int) -> bool:
        return all(
            self.accepts(each, depth)
            for section in _DEFINITIONS
            for each in _as_object(fields.get(section)).values()
        )

    def _accepts_reference(self, reference: Any) -> bool:
        if reference == "#":
            return self._rules.recursion
        definition = _find_definition(self._root, reference)
        return definition is not None and (self._rules.recursion or not self._leads_to(definition, (reference,)))

    def _leads_to(self, value: Any, references: tuple[Any, ...]) -> bool:
        """Return whether a schema refers to one of these, directly or through others."""
        if isinstance(value, list):
            return any(self._leads_to(each, references) for each in cast("list[Any]", value))
        if not isinstance(value, dict):
            return False
        fields = cast("dict[str, Any]", value)
        if isinstance(reference := fields.get("$ref"), str):
            if reference in references or reference == "#":
                return True
            return self._leads_to(_find_definition(self._root, reference), (*references, reference))
        return any(self._leads_to(each, references) for each in fields.values())

    def _accepts_values(self, fields: dict[str, Any]) -> bool:
        constants = [fields["const"]] if "const" in fields else []
        constants += fields.get("enum", ())
        self._constants += len(constants)
        if constants and self._rules.typed_constants and "type" not in fields:
            return False
        if any(isinstance(each, dict | list) for each in constants):
            return False
        if "format" in fields and fields["format"] not in self._rules.formats:
            return False
        highest = self._rules.min_items
        return highest is None or fields.get("minItems", 0) <= highest

    def _accepts_kind(self, fields: dict[str, Any], depth: int) -> bool:
        """Return whether a schema names the kind of value that it describes, and the parts of it are accepted."""
        type_ = fields.get("type")
        types = cast("list[Any]", type_) if isinstance(type_, list) else [type_]
        if len(types) > 1 or "anyOf" in fields:
            self._unions += 1
        if "array" in types and not self.accepts(fields.get("items"), depth + 1):
            return False
        if "object" in types:
            return self._accepts_object(fields, depth)
        return type_ is not None or any(name in fields for name in ("anyOf", "allOf", "enum", "const"))

    def _accepts_object(self, fields: dict[str, Any], depth: int) -> bool:
        properties = _as_object(fields.get("properties"))
        required: Iterable[Any] = fields.get("required", ())
        optional = properties.keys() - set(required)
        self._properties += len(properties)
        self._optional += len(optional)
        if fields.get("additionalProperties") is not False or (optional and self._rules.all_required):
            return False
        return all(self.accepts(each, depth + 1) for each in properties.values())


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
