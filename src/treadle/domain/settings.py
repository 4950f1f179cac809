"""Conversion of plain values to settings. Each value is checked separately, so that an error can name the key,
what was found and what is accepted."""

import math
import types
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from treadle.domain.limits import strip_bounds
from treadle.domain.suggestions import find_closest

SECRET_KEYS = ("key", "header", "env", "secret")
"""A value whose path contains one of these is not quoted in errors."""

_Kind = TypeVar("_Kind", bound=Struct)


class InvalidValue(Exception):
    """A value is invalid. The message says where and why."""


def check_struct(value: Any, kind: type[_Kind], at: str = "") -> _Kind:
    """Return the value as a struct. Each field is checked separately, so that an error knows its location."""
    if not isinstance(value, dict):
        raise InvalidValue(_describe_mismatch(value, kind, at))
    data = cast("dict[str, Any]", value)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in data:
        if name not in fields:
            raise InvalidValue(_describe_unknown_key(name, list(fields), at))
    for name, field in fields.items():
        if name in data:
            _check(data[name], field.type, _join(at, name))
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            raise InvalidValue(f"{_join(at, name)} is missing; accepted: {_describe_type(field.type)}")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        raise InvalidValue(_describe_refusal(data, kind, at)) from None


def _check(value: Any, kind: Any, at: str) -> None:
    """Check a value against a type, down to the leaves."""
    kind = strip_bounds(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(value, dict) and (struct := _find_struct(kind)) is not None:
        check_struct(value, struct, at)
    elif origin is dict and isinstance(value, dict) and arguments[1] is not Any:
        for name, item in cast("dict[str, Any]", value).items():
            _check(item, arguments[1], _join(at, name))
    elif origin is tuple and isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            _check(item, arguments[0], f"{at}[{index}]")
    else:
        _check_leaf(value, kind, at)


def _find_struct(kind: Any) -> type[Struct] | None:
    """Return the struct that a mapping must become, if the type leaves no choice."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    return structs[0] if len(structs) == 1 else None


def _check_leaf(value: Any, kind: Any, at: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InvalidValue(_describe_mismatch(value, kind, at)) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(f"{at}: found {value}; accepted: a finite number")


def _describe_refusal(data: dict[str, Any], kind: type[Struct], at: str) -> str:
    """Return which value a struct refuses although its type is right: the one that it refuses on its own, if there
    is one."""
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    least = {name: data[name] for name in required}
    refusal = _find_refusal(data, kind)
    if _find_refusal(least, kind) == refusal:
        return _locate_refusal(refusal.partition(" ")[0], refusal, data, at)
    for name in (name for name in data if name not in required):
        if _find_refusal(least | {name: data[name]}, kind) == refusal:
            return _locate_refusal(name, refusal, data, at)
    return f"{at}: {refusal}" if at else refusal


def _find_refusal(data: dict[str, Any], kind: type[Struct]) -> str:
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _locate_refusal(name: str, message: str, data: dict[str, Any], at: str) -> str:
    """Return a struct's message about one of its values, with the whole path and what was found."""
    if name not in data:
        return f"{at}: {message}"
    subject, _, predicate = message.partition(" ")
    names_it = subject.rpartition(".")[2] == name
    message_text = f"{_join(at, name)} {predicate}" if names_it else f"{_join(at, name)}: {message}"
    return (
        message_text
        if str(data[name]) in message_text
        else f"{message_text}; found {_describe_value(data[name], at)}"
    )


# ── Messages ──


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _describe_mismatch(value: Any, kind: Any, at: str) -> str:
    where = f"{at}: " if at else ""
    return f"{where}found {_describe_value(value, at)}; accepted: {_describe_type(kind)}"


def _describe_unknown_key(name: str, known: list[str], at: str) -> str:
    near = find_closest(name, known)
    hint = f"did you mean `{near}`? " if near else ""
    return f"{_join(at, name)} is not a known key; {hint}accepted: {', '.join(known)}"


def _describe_value(value: Any, at: str) -> str:
    is_secret = any(word in at for word in SECRET_KEYS)
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return "text" if is_secret else f"the text `{value if len(value) <= 60 else value[:59] + '…'}`"
        case int() | float():
            return "a number" if is_secret else f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a value of type {type(value).__name__}"


_TYPE_NAMES: dict[Any, str] = {
    type(None): "null",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
}


def _describe_type(kind: Any) -> str:
    """Return a description of a type."""
    kind = strip_bounds(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe_type(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        return "a list of text" if arguments[0] is str else "a list"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"a mapping with the keys {', '.join(field.encode_name for field in msgspec.structs.fields(kind))}"
    return _TYPE_NAMES.get(origin or kind, "another type")
