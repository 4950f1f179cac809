"""How these routes are described, and how they answer with one value."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from treadle.surfaces.http.openai.errors import Failure

FAILURES = (400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 500, 502, 503, 504)


def speaks(summary: str) -> dict[str, Any]:
    """For the decorator of a route: whoever asks must have the scope `run`; what it does; how it may fail."""
    failures = {
        status: ResponseSpec(Failure, description=HTTPStatus(status).phrase, generate_examples=False)
        for status in FAILURES
    }
    return {"opt": {"scope": "run"}, "summary": summary, "responses": failures}


def answers(summary: str, body: type[msgspec.Struct]) -> dict[str, Any]:
    """The same, for a route that answers with such a value or, where it is asked to, with a stream."""
    said = speaks(summary)
    whole = ResponseSpec(body, description="The answer", generate_examples=False)
    return said | {"responses": {200: whole, **said["responses"]}, "operation_class": MayStream}


@dataclass
class MayStream(Operation):
    """A route whose answer may be a stream."""

    def __post_init__(self) -> None:
        found = (self.responses or {}).get("200")
        content: Any = getattr(found, "content", None)
        if content is not None:
            content["text/event-stream"] = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))


def said(body: msgspec.Struct, headers: Mapping[str, str] | None = None) -> ASGIApp:
    """An answer of one value."""
    return ASGIResponse(body=msgspec.json.encode(body), media_type="application/json", headers=dict(headers or {}))
