"""Pydantic models as arguments and results of tools, and as answers. Pydantic is used only where a program has
imported it."""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, cast, get_args

DEFINITIONS = "$defs"


def is_model(type_: Any) -> bool:
    """Return whether a type is a pydantic model."""
    return isinstance(type_, type) and hasattr(type_, "model_json_schema") and hasattr(type_, "model_validate")


def contains_model(type_: Any) -> bool:
    """Return whether a type is a pydantic model, or has one in it, such as `list[Model]` or `One | Other`."""
    return is_model(type_) or any(map(contains_model, get_args(type_)))


def adapt(type_: Any) -> Any:
    """Return pydantic's adapter for a type that contains a model."""
    return sys.modules["pydantic"].TypeAdapter(type_)


def validate(adapter: Any, text: str) -> Any:
    """Return a JSON text as the type of an adapter. Raise ValueError with the faults if it does not fit."""
    try:
        return adapter.validate_json(text)
    except ValueError as error:
        raise ValueError(_explain(error)) from None


class _Adapted(type):
    """The type of types that stand for one that msgspec cannot read, such as a union of models."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


@cache
def make_readable(type_: Any) -> Any:
    """Return a type that msgspec can read with `decode` and `make_schema`: the given one, if it can."""
    import msgspec

    if is_model(type_) or not contains_model(type_):
        return type_
    try:
        msgspec.json.schema(type_, schema_hook=make_schema)
    except TypeError:
        adapter = adapt(type_)
        methods = {"model_json_schema": adapter.json_schema, "model_validate": adapter.validate_python}
        return _Adapted(
            "_".join(_list_names(type_)), (), {each: staticmethod(method) for each, method in methods.items()}
        )
    return type_


def _list_names(type_: Any) -> list[str]:
    """Return the names of the models in a type."""
    return [type_.__name__] if is_model(type_) else [name for each in get_args(type_) for name in _list_names(each)]


def make_schema(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of a model, for msgspec. Raise NotImplementedError for other types."""
    if not is_model(type_):
        raise NotImplementedError
    prefix = f"{type_.__name__}_"
    schema = cast("dict[str, Any]", type_.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}"))
    if DEFINITIONS in schema:
        schema[DEFINITIONS] = {f"{prefix}{name}": each for name, each in schema[DEFINITIONS].items()}
    return schema


def take_definitions(schema: Any) -> dict[str, Any]:
    """Remove the definitions of models inside a schema, and return them for its top, where references find them."""
    found: dict[str, Any] = {}
    if isinstance(schema, Mapping):
        inner = cast("dict[str, Any]", schema)
        found |= inner.pop(DEFINITIONS, {})
        for each in inner.values():
            found |= take_definitions(each)
    elif isinstance(schema, list):
        for each in cast("list[Any]", schema):
            found |= take_definitions(each)
    return found


def decode(type_: Any, value: Any) -> Any:
    """Return a decoded argument as a model, for msgspec. A value that does not fit raises ValueError."""
    if not is_model(type_):
        raise NotImplementedError(f"{type_} cannot be read from JSON")
    try:
        return type_.model_validate(value)
    except ValueError as error:
        raise ValueError(_explain(error)) from None


def encode(value: Any) -> Any:
    """Return a model as plain values, for msgspec. Raise TypeError for other values."""
    if is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _explain(error: ValueError) -> str:
    """Return what a validation error says, one fault after another."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in errors()]
    return "; ".join(f"`{place}`: {message}" if place else message for place, message in faults)
