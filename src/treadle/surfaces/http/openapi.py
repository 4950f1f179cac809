"""The route that serves the description of the API."""

import asyncio

from starlette.responses import Response

from treadle.surfaces.http.api_description import build_description
from treadle.surfaces.http.dependencies import ApiRequest
from treadle.surfaces.http.routing import make_json_response, route

PATH = "/v1/openapi.json"


@route("GET", PATH)
async def show_description(request: ApiRequest) -> Response:
    return make_json_response(await asyncio.to_thread(build_description))


ROUTES = [show_description]
