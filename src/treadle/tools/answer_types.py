"""Python types of answers: their JSON Schema, and what they say about an answer that fits the schema."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.tools import pydantic


def make_answer_schema(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type. Raise TypeError for a type that has none."""
    if pydantic.contains_model(type_):
        return pydantic.adapt(type_).json_schema()
    return msgspec.json.schema(type_)


def parse_answer(text: str, type_: Any) -> Any:
    """Return an answer as a value of a type. Raise ValueError if the type refuses it."""
    if pydantic.contains_model(type_):
        return pydantic.validate(pydantic.adapt(type_), text)
    try:
        return msgspec.json.decode(text, type=type_)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


class AnswerTypes:
    """The types of answers that a program has asked for, by their schema. A type may refuse what its schema
    allows."""

    def __init__(self) -> None:
        self._types: dict[bytes, Any] = {}

    def add(self, schema: Mapping[str, Any], type_: Any) -> None:
        self._types[_make_key(schema)] = type_

    def find_error(self, schema: Mapping[str, Any], answer: str) -> str | None:
        """Return why the type refuses an answer, or None."""
        type_ = self._types.get(_make_key(schema)) if self._types else None
        if type_ is None:
            return None
        try:
            parse_answer(answer, type_)
        except Exception as error:  # validators are third-party code
            return str(error) or type(error).__name__
        return None


def _make_key(schema: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(schema, order="sorted")
