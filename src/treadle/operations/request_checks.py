"""The constraints of a request, such as limits and lengths, for calls in this process. A request that arrives over
HTTP is checked as it is decoded. Both are refused with the same message."""

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from treadle.domain.errors import SizeLimitExceeded
from treadle.operations.refusal import Refusal

TEXT_TOO_LONG = re.compile("Expected `str` of length <= ([0-9]+)")
"""How msgspec reports a text that exceeds its limit."""
_PLACE = re.compile(r"^(?P<message>.*) - at `\$\.?(?P<place>.*)`$", re.DOTALL)
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


class InvalidParameter(Exception):
    """A parameter of the query that cannot be read."""


class _CheckedField(NamedTuple):
    """A field whose value can violate a constraint."""

    name: str
    default: Any
    type: Any
    """The type with its own constraints; None if only structs inside it can have some."""
    has_structs: bool


def conforms(value: object) -> bool:
    """Return whether a struct, and the structs in it, respect the constraints of their types. msgspec does not
    check a struct that exists already."""
    match value:
        case Struct():
            for field in _list_checks(type(value)):
                found = getattr(value, field.name)
                if found is not field.default and not _conforms_field(field, found):
                    return False
            return True
        case tuple() | list():
            return all(map(conforms, cast("Iterable[object]", value)))
        case dict():
            return all(map(conforms, cast("dict[object, object]", value).values()))
        case _:
            return True


def explain_invalid_request(error: Exception) -> Refusal:
    """Return the refusal of a request that cannot be decoded: 413 if a text of its body is too long."""
    match error:
        case InvalidParameter():
            return Refusal(400, "BadRequest", str(error), str(error).partition(":")[0])
        case UnicodeDecodeError():
            return Refusal(400, "InvalidText", "The body is not valid UTF-8. Encode it as UTF-8.")
        case msgspec.ValidationError():
            return _explain_invalid_body(error)
        case msgspec.DecodeError():
            return Refusal(400, "BadRequest", f"the body: it is not valid JSON ({error})")
        case _:
            raise error


def explain_length(field: str, limit: str) -> str:
    """Return what to do about a text that is too long."""
    return f"{field} is too long: the limit is {limit} characters. Shorten it, or send it in parts."


def _explain_invalid_body(error: msgspec.ValidationError) -> Refusal:
    found = _PLACE.match(str(error))
    message, place = (str(error), "") if found is None else (found["message"], found["place"])
    if (limit := TEXT_TOO_LONG.search(message)) is not None:
        return Refusal(413, SizeLimitExceeded.__name__, explain_length(place, limit[1]), place)
    return Refusal(400, "BadRequest", f"{place or 'the body'}: {message}", place or None)


def _conforms_field(field: _CheckedField, value: object) -> bool:
    if field.type is not None:
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            return False
    return not field.has_structs or conforms(value)


@cache
def _list_checks(struct: type[Struct]) -> tuple[_CheckedField, ...]:
    found: list[_CheckedField] = []
    for field in msgspec.structs.fields(struct):
        is_constrained, has_structs = _is_constrained(field.type), _has_structs(field.type)
        if is_constrained or has_structs:
            type_ = field.type if is_constrained else None
            found.append(_CheckedField(field.name, field.default, type_, has_structs))
    return tuple(found)


def _is_constrained(type_: Any) -> bool:
    """Return whether a type has a constraint outside of structs."""
    if get_origin(type_) is Annotated:
        metas = [meta for meta in type_.__metadata__ if isinstance(meta, Meta)]
        if any(getattr(meta, name) is not None for meta in metas for name in _CONSTRAINTS):
            return True
    return any(map(_is_constrained, get_args(type_)))


def _has_structs(type_: Any) -> bool:
    """Return whether a value of a type can contain structs."""
    if isinstance(type_, type) and issubclass(type_, Struct):
        return True
    return any(map(_has_structs, get_args(type_)))
