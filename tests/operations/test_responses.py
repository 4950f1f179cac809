"""Every request and every response of every operation survives the way between a remote caller and the server."""

from typing import Any
from urllib.parse import unquote

import pytest

from tests.operations.generated import ValueMaker
from treadle.operations.operation import Operation, WireRequest
from treadle.operations.registry import all_operations
from treadle.remote.caller import RemoteCaller
from treadle.surfaces.http.operation_routes import make_response

SEEDS = range(40)
CALLED = [operation for operation in all_operations() if operation.response is not str]
"""All but those whose response is text, such as a stream."""


class AnsweringConnection:
    """A connection to a server that decodes a request and answers with one value, as the HTTP service does."""

    def __init__(self, operation: Operation[Any, Any], value: Any) -> None:
        self._operation = operation
        self._value = value
        self.request: Any = None

    async def send(self, method: str, request: WireRequest, key: str | None = None) -> bytes:
        segments, names = request.path.split("/"), self._operation.path.split("/")
        path = {
            name[1:-1]: unquote(segment) for name, segment in zip(names, segments, strict=True) if name[:1] == "{"
        }
        self.request = self._operation.decode(path, request.query, request.body or b"")
        return bytes(make_response(self._operation, self._value).body)


@pytest.mark.parametrize("operation", CALLED, ids=lambda operation: operation.name)
async def test_what_is_sent_and_what_is_returned_arrive(operation: Operation[Any, Any]) -> None:
    for seed in SEEDS:
        values = ValueMaker(seed)
        type_ = operation.response_types[seed % len(operation.response_types)]
        request, value = values.make(operation.request), values.make(type_)
        connection = AnsweringConnection(operation, value)
        remote = RemoteCaller(connection)  # pyright: ignore[reportArgumentType] -- a double
        arrived = await remote.call(operation, request)
        assert (type(arrived), arrived) == (type(value), value)
        assert connection.request == request
