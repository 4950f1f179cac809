"""One plain route for each operation: decode the request, perform the operation, encode the response."""

import re
from typing import Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from treadle.operations.operation import Operation, R
from treadle.operations.registry import all_operations
from treadle.operations.request_checks import InvalidParameter, explain_invalid_request
from treadle.surfaces.http.dependencies import ApiRequest, get_context


def make_operation_routes() -> list[HTTPRouteHandler]:
    """Return the plain routes of all operations."""
    return [make_route(operation) for operation in all_operations() if operation.has_plain_route]


def make_route(operation: Operation[Any, Any]) -> HTTPRouteHandler:
    """Return the route of an operation."""

    async def perform(request: ApiRequest) -> Response[bytes | None]:
        parameters = await read_request(operation, request)
        return make_response(operation, await operation.perform(get_context(request), parameters))

    return HTTPRouteHandler(
        re.sub(r"\{(\w+)\}", r"{\1:str}", operation.path),
        http_method=operation.method,
        status_code=200,  # the response has its own
        opt={"scope": operation.scope, "query": frozenset(operation.query_fields)},
        include_in_schema=False,
    )(perform)


def make_response(operation: Operation[Any, R], result: R) -> Response[bytes | None]:
    """Return the response with the result of an operation."""
    body = operation.encode_response(result)
    return Response(body, status_code=operation.find_status(result), media_type="application/json")


async def read_request(operation: Operation[Any, Any], request: ApiRequest) -> Any:
    """Return the decoded parameters of a request. Raise Refusal if they are invalid."""
    sent = {name: request.query_params.getall(name) for name in request.query_params}
    query = {name: found if name in operation.repeated_fields else found[-1] for name, found in sent.items()}
    body = await request.body() if operation.body_fields else b""
    try:
        return operation.decode(request.path_params, query, body)
    except (InvalidParameter, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise explain_invalid_request(error) from None
