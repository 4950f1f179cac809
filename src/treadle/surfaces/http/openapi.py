"""The route that serves the description of the API."""

import asyncio

from starlette.responses import Response

from treadle.surfaces.http.api_description import build_description
from treadle.surfaces.http.dependencies import ApiRequest
from treadle.surfaces.http.routing import make_json_response, route

PATH = "/v1/openapi.json"


@route("GET", PATH)
async def show_description(request: ApiRequest) -> Response:
    """Return the description with the address of this server, relative to that of the description."""
    description = await asyncio.to_thread(build_description)
    return make_json_response({**description, "servers": [{"url": request.scope.get("root_path") or "/"}]})


ROUTES = [show_description]
