"""The description of the HTTP API as OpenAPI 3.1, made from the definitions of the operations."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from types import NoneType
from typing import Any, cast

import msgspec
from msgspec.structs import FieldInfo

from treadle.domain.envelope import Event
from treadle.operations import event_schemas
from treadle.operations.field_docs import describe_fields
from treadle.operations.operation import Operation
from treadle.operations.refusal import Problem

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
REFERENCE = "#/components/schemas/{name}"
ALWAYS = (400, 401, 403, 408, 413, 421, 500, 503)
"""The errors that every operation can have."""
OF_KEYS = (409, 422)
"""The errors of a request with an idempotency key."""
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request that is repeated with the same key is performed once, and gets the same response, "
    "for "
    "a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
AnyOperation = Operation[Any, Any]
_PAGE = re.compile(r"Page\[(?P<item>.+)\]")


def describe(operations: Iterable[AnyOperation], version: str, server: str) -> dict[str, Any]:
    """Return the description of the public operations, with the URL of the server that has them."""
    public = [operation for operation in operations if operation.public]
    types = list(_types(public))
    schemas, components = msgspec.json.schema_components(
        [*types, *event_schemas.list_types()], ref_template=REFERENCE
    )
    describe_fields(components)
    schemas, components = _name_pages(schemas, components)
    event_schemas.add_event(components, REFERENCE)
    named = dict(zip(map(_key, types), schemas, strict=False))
    named[_key(Event)] = {"$ref": REFERENCE.format(name=Event.__name__)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in public:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, named)
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Treadle",
            "version": version,
            "description": "Agents behind an API: durable, guarded, observable.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An access token: trd_…"}
            },
        },
        "security": [{"token": []}],
    }
    _complete_arrays(described)
    return msgspec.json.decode(msgspec.json.encode(described))  # a default can be a tuple


def _name_pages(schemas: Any, components: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the schemas with a name for each kind of page that a language can have: `Page[RunView]` is named
    `RunViewPage`, and a page of several kinds of items `ItemPage`."""
    text = msgspec.json.encode([schemas, components]).decode()
    for name, schema in components.items():
        if (found := _PAGE.fullmatch(schema.get("title", ""))) is not None:
            item = found["item"]
            new = f"{item if item.isidentifier() else 'Object' if item.startswith('dict') else 'Item'}Page"
            assert new not in components, f"{name} and {new} would have one name"
            text = text.replace(f'"{REFERENCE.format(name=name)}"', f'"{REFERENCE.format(name=new)}"')
            text = text.replace(f'"{name}":', f'"{new}":').replace(
                f'"title":"{schema["title"]}"', f'"title":"{new}"'
            )
    return msgspec.json.decode(text, type=tuple[tuple[Any, ...], dict[str, Any]])


def _complete_arrays(description: Any) -> None:
    """Give each array a schema of its items, which generators of clients need. For a tuple it is that of any of its
    places; `minItems` and `maxItems` say how many there are."""
    match description:
        case dict():
            found = cast("dict[str, Any]", description)
            if found.get("type") == "array" and not found.get("items"):
                options = list({repr(each): each for each in found.get("prefixItems", ())}.values())
                found["items"] = {"anyOf": options} if len(options) > 1 else options[0] if options else {}
            for each in found.values():
                _complete_arrays(each)
        case list() | tuple():
            for each in cast("Sequence[Any]", description):
                _complete_arrays(each)
        case _:
            pass


def _types(operations: Sequence[AnyOperation]) -> Iterable[Any]:
    """Yield each type that the description has a schema of, once."""
    seen: set[str] = set()
    for operation in operations:
        fields = msgspec.structs.fields(operation.request)
        bodies = () if operation.body_schema is None else (operation.body_schema,)
        responses = operation.response_types
        frames = (frame for frame in operation.frames if frame is not Event)  # `event_schemas` describes it
        for type_ in (*(field.type for field in fields), *bodies, *responses, *frames, operation.failure):
            if type_ is not NoneType and _key(type_) not in seen:
                seen.add(_key(type_))
                yield type_


def _key(type_: Any) -> str:
    return f"{getattr(type_, '__module__', '')}.{type_!r}"


def _operation(operation: AnyOperation, named: dict[str, Any]) -> dict[str, Any]:
    summary, description = operation.documentation
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": summary,
        "operationId": operation.name,
        "parameters": [*_parameters(operation, named)],
        "responses": _responses(operation, named),
    }
    if description:
        described["description"] = description
    if operation.body_fields:
        described["requestBody"] = _body(operation, named)
    if operation.scope is None:
        described["security"] = []
    return described


def _parameters(operation: AnyOperation, named: dict[str, Any]) -> Iterable[dict[str, Any]]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(operation.request)}
    for name in operation.path_fields:
        schema = _schema(fields[name], named)
        if schema.get("type") == "string":
            schema.setdefault("minLength", 1)  # an empty one would be another path
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name, field in operation.query_fields.items():
        schema = _without_null(_schema(field, named))
        told = {"description": schema.pop("description")} if "description" in schema else {}
        yield {"name": name, "in": "query", "required": field.required, "schema": schema, **told}
    if operation.header is not None:
        told = {"description": "The id of the last event that was received.", "schema": {"type": "string"}}
        yield {"name": operation.header, "in": "header", "required": False, **told}
    if operation.method == "POST":
        yield IDEMPOTENCY_KEY


def _body(operation: AnyOperation, named: dict[str, Any]) -> dict[str, Any]:
    fields = operation.body_fields
    if operation.whole_body is not None:
        field = fields[operation.whole_body]
        schema = named[_key(operation.body_schema)] if operation.body_schema is not None else _schema(field, named)
    else:
        schema = {
            "title": operation.request.__name__,
            "type": "object",
            "properties": {name: _schema(field, named) for name, field in fields.items()},
            "required": [name for name, field in fields.items() if field.required],
            "additionalProperties": False,
        }
    return {"required": any(field.required for field in fields.values()), "content": {JSON: {"schema": schema}}}


def _responses(operation: AnyOperation, named: dict[str, Any]) -> dict[str, Any]:
    statuses = {*ALWAYS, *operation.errors, *(OF_KEYS if operation.method == "POST" else ())}
    media = PROBLEM if operation.failure is Problem else JSON
    failure = {media: {"schema": named[_key(operation.failure)]}}
    found: dict[str, Any] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": failure} for status in sorted(statuses)
    }
    phrase = HTTPStatus(operation.status).phrase
    if operation.response is NoneType:
        return {str(operation.status): {"description": phrase}, **found}
    if operation.streams == "always":
        ended = {"204": {"description": "There are no more events"}}
        content: dict[str, Any] = {EVENTS: {"schema": _frames(operation, named)}}
        return {"200": {"description": "Server-sent events", "content": content}, **ended, **found}
    kind = TEXT if operation.response is str else JSON
    options = [named[_key(option)] for option in operation.response_types]
    content = {kind: {"schema": options[0] if len(options) == 1 else {"anyOf": options}}}
    if operation.streams == "on_request":
        content[EVENTS] = {"schema": _frames(operation, named)}
    good = {"description": phrase, "content": content}
    responses = {str(operation.status): good, **found}
    return {"200": good, **responses} if operation.waits else responses


def _frames(operation: AnyOperation, named: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a stream: text whose lines `data:` hold these values as JSON."""
    frames = [named[_key(frame)] for frame in operation.frames]
    frame = frames[0] if len(frames) == 1 else {"anyOf": frames}
    return {"type": "string", "contentMediaType": JSON, "contentSchema": frame}


def _schema(field: FieldInfo, named: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field, with its default."""
    schema = dict(named[_key(field.type)])
    if field.default is not msgspec.NODEFAULT:
        schema["default"] = msgspec.to_builtins(field.default)
    elif field.default_factory is not msgspec.NODEFAULT:
        schema["default"] = msgspec.to_builtins(field.default_factory())
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter of the query, which is left out rather than null."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        schema = {
            **options[0],
            **{name: value for name, value in schema.items() if name not in ("anyOf", "default")},
        }
    elif schema.get("default", 0) is None:
        del schema["default"]
    return schema
