"""The constraints of requests: each holds for calls in this process and over HTTP, with the same error."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as kinds
import pytest

from tests.operations.generated import ValueMaker
from tests.surfaces.http.served_home import serve_home
from treadle.domain.errors import TreadleError
from treadle.operations.context import Context
from treadle.operations.operation import Caller, LocalCaller, Operation
from treadle.operations.registry import all_operations
from treadle.remote.caller import RemoteCaller
from treadle.remote.connection import Address, Connection

Place = tuple[str, ...]


def list_violations(operation: Operation[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield requests that violate one constraint each, and where."""
    for place, value in _list_invalid_values(kinds.type_info(operation.request), ()):
        names = ".".join(map(str, place))
        yield (
            f"{operation.name} {names}={str(value)[:20]}",
            _put(ValueMaker(1).make(operation.request), place, value),
        )


def _list_invalid_values(kind: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    match kind:
        case kinds.Metadata():
            yield from _list_invalid_values(kind.type, place)
        case kinds.UnionType():
            for each in kind.types:
                yield from _list_invalid_values(each, place)
        case kinds.StructType():
            for field in kind.fields:
                yield from _list_invalid_values(field.type, (*place, field.name))
        case kinds.VarTupleType():
            item = ValueMaker(1).make_kind(kind.item_type)
            yield from ((place, (item,) * count) for count in _list_wrong_lengths(kind))
            yield from ((place, (value,)) for _, value in _list_invalid_items(kind, item))
        case kinds.StrType():
            yield from ((place, "x" * count) for count in _list_wrong_lengths(kind))
            if kind.pattern is not None:
                yield place, "no match"
        case kinds.IntType() | kinds.FloatType():
            yield from ((place, value) for value in _list_wrong_numbers(kind))
        case kinds.DateTimeType(tz=True):
            yield place, datetime(2026, 3, 1, tzinfo=UTC).replace(tzinfo=None)
        case _:
            pass


def _list_invalid_items(kind: kinds.VarTupleType, item: Any) -> Iterator[tuple[Place, Any]]:
    for place, value in _list_invalid_values(kind.item_type, ()):
        yield place, _put(item, place, value)


def _list_wrong_lengths(kind: Any) -> Iterator[int]:
    if kind.min_length:
        yield kind.min_length - 1
    if kind.max_length is not None:
        yield kind.max_length + 1


def _list_wrong_numbers(kind: Any) -> Iterator[float]:
    limits = ((kind.ge, -1), (kind.gt, 0), (kind.le, 1), (kind.lt, 0))
    yield from (limit + step for limit, step in limits if limit is not None)


def _put(request: Any, place: Place, value: Any) -> Any:
    """Return a request with another value at a place."""
    if not place:
        return value
    name, *rest = place
    return msgspec.structs.replace(request, **{name: _put(getattr(request, name), tuple(rest), value)})


VIOLATIONS = [
    (operation, name, request)
    for operation in all_operations()
    if operation.has_handler
    for name, request in list_violations(operation)
]


async def find_refusal(caller: Caller, operation: Operation[Any, Any], request: Any) -> tuple[type, str]:
    with pytest.raises(TreadleError) as refused:
        await caller.call(operation, request)
    return type(refused.value), str(refused.value)


async def test_a_violated_constraint_is_refused_here_and_over_http_with_the_same_error(tmp_path: Path) -> None:
    here = LocalCaller(Context())  # without services: nothing but the check can refuse
    async with serve_home(tmp_path) as web, Connection(Address(url=web.url, token=web.token)) as connection:
        there = RemoteCaller(connection)
        for operation, name, request in VIOLATIONS:
            found = await find_refusal(here, operation, request)
            assert found == await find_refusal(there, operation, request), name


def test_most_kinds_of_constraints_are_tried() -> None:
    tried = {name.split("=")[0] for _, name, _ in VIOLATIONS}
    assert len(tried) > 80
    assert {"sessions.list limit", "sessions.rename title", "vault.put grants", "skills.approve sha256"} <= tried
