"""Routes: which function answers a request, and who may send it.

Starlette's router tries one pattern after the other, which costs up to 106 us with our routes. Here a path without
parameters is found in a table, and one with parameters among the patterns with as many segments."""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from treadle.domain.access import Scope
from treadle.operations.operation import Operation, Q
from treadle.operations.refusal import Refusal
from treadle.operations.request_checks import InvalidParameter, explain_invalid_request
from treadle.surfaces.http.auth import get_principal
from treadle.surfaces.http.body_limit import MAX_BODY_BYTES
from treadle.surfaces.http.dependencies import ApiRequest, Services
from treadle.surfaces.http.openai.errors import is_absent
from treadle.surfaces.http.problems import make_problem_response

Answer = Callable[[ApiRequest], Awaitable[ASGIApp]]
OperationAnswer = Callable[[Q, ApiRequest], Awaitable[ASGIApp]]


class HttpRoute(Struct, frozen=True):
    """A method of a path."""

    method: str
    path: str
    answer: Answer
    """Returns the response, or raises the error that is the response."""
    scopes: tuple[Scope, ...] = ()
    """Any of them is enough. Empty: the caller needs no scope, or the request carries its own proof."""
    parameters: Collection[str] = ()
    """The names of the parameters of the query."""
    max_body_bytes: int = MAX_BODY_BYTES


def route(
    method: str,
    path: str,
    *,
    scope: Scope | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Callable[[Answer], HttpRoute]:
    """Make a function a route, which reads its request itself."""
    return lambda answer: HttpRoute(
        method=method,
        path=path,
        answer=answer,
        scopes=() if scope is None else (scope,),
        max_body_bytes=max_body_bytes,
    )


def serve(operation: Operation[Q, Any]) -> Callable[[OperationAnswer[Q]], HttpRoute]:
    """Make a function the route of an operation, whose decoded parameters it gets."""

    def make_route(answer: OperationAnswer[Q]) -> HttpRoute:
        async def answer_decoded(request: ApiRequest) -> ASGIApp:
            return await answer(await read_request(operation, request), request)

        return HttpRoute(
            method=operation.method,
            path=operation.path,
            answer=answer_decoded,
            scopes=operation.scopes,
            parameters=frozenset(operation.query_fields),
        )

    return make_route


async def read_request(operation: Operation[Q, Any], request: ApiRequest) -> Q:
    """Return the decoded parameters of a request. Raise Refusal if they are invalid."""
    sent = request.query_params
    query = {name: sent.getlist(name) if name in operation.repeated_fields else sent[name] for name in sent}
    body = await request.body() if operation.body_fields else b""
    try:
        return operation.decode(request.path_params, query, body)
    except (InvalidParameter, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise explain_invalid_request(error) from None


def make_json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


class Router:
    """ASGI application that answers with the route of a request."""

    def __init__(self, routes: Sequence[HttpRoute], services: Services) -> None:
        self._services = services
        resources: dict[str, dict[str, HttpRoute]] = defaultdict(dict)
        for each in routes:
            resources[each.path][each.method] = each
        self._resources = dict(resources)
        self._patterns: dict[int, list[tuple[re.Pattern[str], dict[str, HttpRoute]]]] = defaultdict(list)
        for path, resource in sorted(resources.items(), key=lambda item: item[0].count("{")):
            if "{" in path:
                self._patterns[path.count("/")].append((compile_path(path)[0], resource))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except ClientDisconnect:
            return
        except Exception as error:
            response = make_problem_response(error, scope["path"], self._services.now())
        await response(scope, receive, send)

    async def _answer(self, scope: AsgiScope, receive: Receive) -> ASGIApp:
        resource, scope["path_params"] = self._find(scope["path"])
        found = resource.get(scope["method"])
        if found is None:
            return self._refuse_method(scope, resource)
        request = ApiRequest(scope, receive, self._services, found.max_body_bytes)
        _check_allowed(found, request)
        return await found.answer(request)

    def _find(self, path: str) -> tuple[dict[str, HttpRoute], dict[str, str]]:
        """Return the routes of a path by method, and the parameters in it."""
        if (resource := self._resources.get(path)) is not None:
            return resource, {}
        for pattern, resource in self._patterns.get(path.count("/"), ()):
            if (found := pattern.fullmatch(path)) is not None:
                return resource, found.groupdict()
        if is_absent(path):
            raise Refusal(404, "NotFound", f"Treadle has no {path}. GET /v1/models lists the agents.")
        raise Refusal(404, "NotFound", "Not Found")

    def _refuse_method(self, scope: AsgiScope, resource: dict[str, HttpRoute]) -> Response:
        """Return the answer to a method that a path does not have."""
        allowed = ", ".join((*sorted(resource), "OPTIONS"))
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers={"allow": allowed})
        refusal = Refusal(405, "MethodNotAllowed", "Method Not Allowed")
        response = make_problem_response(refusal, scope["path"], self._services.now())
        response.headers["allow"] = allowed
        return response


def _check_allowed(route: HttpRoute, request: ApiRequest) -> None:
    """Raise Refusal if the caller may not make this request. Runs before the body is read."""
    if not route.scopes:
        return
    principal = get_principal(request)
    if not principal.may(*route.scopes):
        wanted = " or ".join(f"`{scope}`" for scope in route.scopes)
        raise Refusal(403, "Forbidden", f"The token `{principal.name}` lacks the scope {wanted}.")
    known = route.parameters
    for name in request.query_params:  # an ignored filter would return what it was meant to leave out
        if name not in known:
            accepted = f"accepted: {', '.join(sorted(known))}" if known else "none is accepted"
            raise Refusal(400, "UnknownParameter", f"Unknown parameter `{name[:100]}`; {accepted}.")
