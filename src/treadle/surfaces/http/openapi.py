"""The route that serves the description of the API."""

import msgspec
from litestar import Response, get

from treadle.surfaces.http.api_description import build_description

PATH = "/v1/openapi.json"


@get(PATH, opt={"scope": None}, include_in_schema=False, sync_to_thread=True)
def show_description() -> Response[bytes]:
    return Response(msgspec.json.encode(build_description()), media_type="application/json")


ROUTES = [show_description]
