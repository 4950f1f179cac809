"""The options of routes that OpenAI clients call, and their responses."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

ROUTE_OPTIONS: dict[str, Any] = {"opt": {"scope": "run"}, "include_in_schema": False}
"""The options of each route."""


def make_json_response(body: msgspec.Struct, headers: Mapping[str, str] | None = None) -> ASGIApp:
    """Return a JSON response."""
    return ASGIResponse(body=msgspec.json.encode(body), media_type="application/json", headers=dict(headers or {}))
