"""The OpenAPI description of the HTTP API. It needs no server."""

from functools import cache
from typing import Any

from treadle.config.home_config import DEFAULT_PORT
from treadle.domain.version import VERSION
from treadle.operations.openapi import describe
from treadle.operations.registry import all_operations
from treadle.surfaces.http.ag_ui import operations as ag_ui
from treadle.surfaces.http.openai import operations as openai


@cache
def build_description() -> dict[str, Any]:
    """Return the OpenAPI description of all operations, of a server with its default address."""
    return describe(
        (*all_operations(), *openai.OPERATIONS, *ag_ui.OPERATIONS), VERSION, f"http://127.0.0.1:{DEFAULT_PORT}"
    )
