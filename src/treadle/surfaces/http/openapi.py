"""The description of the API, served as JSON."""

from functools import cache

import msgspec
from litestar import Response, get

from treadle import __version__
from treadle.operations.openapi import describe
from treadle.operations.registry import all_operations
from treadle.surfaces.http.openai.operations import OPERATIONS

PATH = "/v1/openapi.json"


@cache
def description() -> bytes:
    """Return the description of all operations as JSON."""
    return msgspec.json.encode(describe((*all_operations(), *OPERATIONS), __version__))


@get(PATH, opt={"scope": None}, include_in_schema=False, sync_to_thread=False)
def show() -> Response[bytes]:
    return Response(description(), media_type="application/json")


ROUTES = [show]
