"""Values of any type that msgspec knows, made from the type: they respect its constraints, and unions take every
form."""

import math
import string
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import msgspec
import msgspec.inspect as kinds

WORDS = ("a", "default", "read", "GET", "10m", 'Zoë said: "no"\n', "日本 \N{ROCKET}", "x/y ?#&%", " ", "{}")
"""Texts. Some are names, so that types which check their values can be made."""
EXAMPLES_OF_PATTERNS = {
    "^[0-9a-f]{64}$": "0123456789abcdef" * 4,
    r"^\d{4}-\d{2}-\d{2}$": "2026-03-01",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$": "default",
    r"^[A-Za-z0-9_-]{1,80}(/\.check-[a-f0-9]{16})?$": "case-1",
}
"""A value for each pattern that a type has."""
DEPTH = 6
ATTEMPTS = 300


class ValueMaker:
    """Makes values, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def make(self, type_: Any) -> Any:
        """Return a value of a type."""
        return self.make_kind(_inspect(type_))

    def make_kind(self, kind: Any) -> Any:
        """Return a value of a type that `msgspec.inspect` describes."""
        return self._make(kind, 0)

    def _make(self, kind: Any, depth: int) -> Any:
        match kind:
            case kinds.Metadata():
                return self._make(kind.type, depth)
            case kinds.UnionType():
                return self._make(self._random.choice(kind.types), depth)
            case kinds.StructType():
                return self._make_struct(kind, depth)
            case kinds.AnyType():
                return self._make_json(depth)
            case kinds.RawType():
                return msgspec.Raw(msgspec.json.encode(self._make_json(depth)))
            case kinds.VarTupleType() | kinds.ListType() | kinds.TupleType() | kinds.DictType():
                return self._make_collection(kind, depth)
            case _:
                return self._make_scalar(kind)

    def _make_scalar(self, kind: Any) -> Any:
        chance = self._random
        match kind:
            case kinds.NoneType():
                return None
            case kinds.BoolType():
                return chance.random() < 0.5
            case kinds.IntType():
                low, high = _find_bounds(kind, step=1)
                return chance.choice((low, high, chance.randint(low, high)))
            case kinds.FloatType():
                low, high = _find_bounds(kind, step=1e-9)
                return chance.choice((float(low), float(high), chance.uniform(low, high)))
            case kinds.StrType():
                return self._make_text(kind)
            case kinds.BytesType():
                return chance.randbytes(chance.randint(0, 9))
            case kinds.DateTimeType():
                return datetime(2024, 2, 29, tzinfo=UTC) + timedelta(seconds=chance.randint(-(10**8), 10**8))
            case kinds.DateType():
                return date(2024, 2, 29) + timedelta(days=chance.randint(-1000, 1000))
            case kinds.LiteralType():
                return chance.choice(kind.values)
            case _:
                raise NotImplementedError(f"no values of {kind}")

    def _make_collection(self, kind: Any, depth: int) -> Any:
        match kind:
            case kinds.TupleType():
                return tuple([self._make(each, depth) for each in kind.item_types])
            case kinds.DictType():
                count = self._count(kind, depth)
                keys = [self._make(kind.key_type, depth + 1) for _ in range(count)]
                return {key: self._make(kind.value_type, depth + 1) for key in keys}
            case _:
                items = [self._make(kind.item_type, depth + 1) for _ in range(self._count(kind, depth))]
                return items if isinstance(kind, kinds.ListType) else tuple(items)

    def _make_text(self, kind: kinds.StrType) -> str:
        if kind.pattern is not None:
            return EXAMPLES_OF_PATTERNS[kind.pattern]
        text = self._random.choice(WORDS)
        low, high = kind.min_length or 0, kind.max_length or math.inf
        while len(text) < low:
            text += self._random.choice(string.ascii_lowercase)
        return text if len(text) <= high else text[: int(high)]

    def _count(self, kind: Any, depth: int) -> int:
        low = kind.min_length or 0
        return low if depth > DEPTH else low + self._random.randint(0, min(2, (kind.max_length or 99) - low))

    def _make_json(self, depth: int) -> Any:
        chance = self._random
        makers: list[Callable[[], Any]] = [
            lambda: None,
            lambda: True,
            lambda: chance.randint(-9, 9),
            lambda: chance.choice(WORDS),
        ]
        if depth <= DEPTH:
            makers.append(lambda: [self._make_json(depth + 2) for _ in range(chance.randint(0, 2))])
            makers.append(lambda: {chance.choice(WORDS): self._make_json(depth + 2)})
        return chance.choice(makers)()

    def _make_struct(self, kind: kinds.StructType, depth: int) -> Any:
        """Return a struct. Fields that have a default take it more and more often if the struct refuses others."""
        for attempt in range(ATTEMPTS):
            share = 0.0 if depth > DEPTH else 0.7 * (1 - attempt / ATTEMPTS)
            values = {
                field.name: self._make(field.type, depth + 1)
                for field in kind.fields
                if field.required or self._random.random() < share
            }
            with suppress(ValueError):  # a check of its own
                return kind.cls(**values)
        raise AssertionError(f"{kind.cls} refuses all values")


@cache
def _inspect(type_: Any) -> Any:
    return kinds.type_info(type_)


def _find_bounds(kind: Any, step: float) -> tuple[Any, Any]:
    """Return the least and the greatest number of a type, within what every JSON reader takes."""
    low = kind.ge if kind.ge is not None else (-(2**53) + 1 if kind.gt is None else kind.gt + step)
    high = kind.le if kind.le is not None else (2**53 - 1 if kind.lt is None else kind.lt - step)
    return low, high
