"""Validation of JSON Schemas, and of texts against them. The validator is imported when it is first used."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.domain.inert_text import make_inert

if TYPE_CHECKING:
    import jsonschema_rs


def check_schema(schema: dict[str, Any]) -> None:
    """Raise ValueError if a JSON Schema is invalid or refers to another document."""
    import jsonschema_rs

    try:
        _validator(msgspec.json.encode(schema, order="sorted"))
    except jsonschema_rs.ValidationError as error:
        raise ValueError(_describe_error(error)) from None
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None


def find_mismatch(text: str, schema: dict[str, Any]) -> str | None:
    """Return why a text is not JSON that matches the schema, or None if it is."""
    import jsonschema_rs

    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return f"it is not JSON ({error})"
    try:
        _validator(msgspec.json.encode(schema, order="sorted")).validate(value)
    except jsonschema_rs.ValidationError as error:
        return _describe_error(error)
    except jsonschema_rs.ReferencingError as error:
        return str(error)
    return None


def make_inert_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a foreign tool as providers accept it: an object, without hidden characters."""
    if not isinstance(schema, dict):
        return {"type": "object", "properties": {}}
    inert = cast("dict[str, Any]", _make_inert_value(schema))
    inert.pop("$schema", None)
    if inert.get("type") != "object":
        inert["type"] = "object"
    inert.setdefault("properties", {})
    return inert


def _make_inert_value(value: Any) -> Any:
    match value:
        case str():
            return make_inert(value)
        case list():
            return [_make_inert_value(item) for item in cast("list[Any]", value)]
        case dict():
            entries = cast("dict[str, Any]", value).items()
            return {make_inert(str(key)): _make_inert_value(item) for key, item in entries}
        case _:
            return value


def _describe_error(error: "jsonschema_rs.ValidationError") -> str:
    where = "/".join(str(step) for step in error.instance_path)
    return f"at `{where}`: {error.message}" if where else error.message


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema), validate_formats=True, retriever=_refuse_reference
    )


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"a schema must not refer to another document ({uri})")
