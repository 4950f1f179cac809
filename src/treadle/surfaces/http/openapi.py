"""How a route is described: what it takes to ask, and how it may fail."""

from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin

from treadle.domain.access import Scope
from treadle.surfaces.http.problems import MEDIA_TYPE, Problem

ALWAYS = (400, 401, 403, 408, 413, 421, 500, 503)
"""How every route may fail."""
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request with the same key is done once, and gets the same answer, for a day.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def asks(scope: Scope | None, summary: str, *failures: int) -> dict[str, Any]:
    """For the decorator of a route: the scope that whoever asks must have, in a few words what it does, and how it
    may fail beside what every route may say."""
    return {
        "opt": {"scope": scope},
        "summary": summary,
        "responses": {status: _problem(status) for status in sorted({*ALWAYS, *failures})},
    }


def streams(summary: str, *failures: int) -> dict[str, Any]:
    """The same, for a route that answers with server-sent events."""
    told = asks("read", summary, 429, *failures)
    events = ResponseSpec(
        str, description="Server-sent events", media_type="text/event-stream", generate_examples=False
    )
    none = ResponseSpec(None, description="There is no more to come")
    return told | {"responses": {200: events, 204: none, **told["responses"]}}


class Description(JsonRenderPlugin):
    """All of it as OpenAPI, with what holds for every route that creates."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return msgspec.json.encode(openapi_schema | {"paths": _with_keys(openapi_schema["paths"])})


def _with_keys(paths: dict[str, dict[str, Any]]) -> dict[str, Any]:
    def told(method: str, operation: Any) -> Any:
        if method != "post":
            return operation
        responses = dict.fromkeys(("409", "422"), operation["responses"]["400"]) | operation["responses"]
        return operation | {"parameters": [*operation.get("parameters", ()), KEY], "responses": responses}

    return {
        path: {method: told(method, operation) for method, operation in item.items()}
        for path, item in paths.items()
    }


def _problem(status: int) -> ResponseSpec:
    words = HTTPStatus(status).phrase
    return ResponseSpec(Problem, description=words, media_type=MEDIA_TYPE, generate_examples=False)
