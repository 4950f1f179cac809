"""The OpenAPI description of the HTTP API. It needs no server."""

from functools import cache
from typing import Any

from treadle.config.home_config import DEFAULT_PORT
from treadle.domain.version import VERSION
from treadle.operations.openapi import describe
from treadle.operations.registry import all_operations
from treadle.surfaces.http.openai.operations import OPERATIONS


@cache
def build_description() -> dict[str, Any]:
    """Return the OpenAPI description of all operations, of a server with its default address."""
    return describe((*all_operations(), *OPERATIONS), VERSION, f"http://127.0.0.1:{DEFAULT_PORT}")
