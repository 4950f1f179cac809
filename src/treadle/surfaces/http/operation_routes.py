"""One plain route for each operation: decode the request, perform the operation, encode the response."""

from typing import Any

from starlette.responses import Response

from treadle.operations.operation import Operation, R
from treadle.operations.registry import all_operations
from treadle.surfaces.http.dependencies import ApiRequest, get_context
from treadle.surfaces.http.routing import HttpRoute, serve


def make_operation_routes() -> list[HttpRoute]:
    """Return the plain routes of all operations."""
    return [_make_route(operation) for operation in all_operations() if operation.has_plain_route]


def _make_route(operation: Operation[Any, Any]) -> HttpRoute:
    async def perform(parameters: Any, request: ApiRequest) -> Response:
        return make_response(operation, await operation.perform(get_context(request), parameters))

    return serve(operation)(perform)


def make_response(operation: Operation[Any, R], result: R) -> Response:
    """Return the response with the result of an operation."""
    body = operation.encode_response(result)
    return Response(body, operation.find_status(result), media_type="application/json")
