"""Routes for operators: liveness, readiness and metrics."""

from msgspec import Struct
from starlette.responses import Response

from treadle.domain.version import VERSION
from treadle.operations.operation import Operation
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services
from treadle.surfaces.http.routing import make_json_response, route, serve
from treadle.telemetry.exposition import merge_pages

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ShowMetrics(Struct, frozen=True):
    """The request of processes behind one port to each other."""

    alone: bool = False
    """Only the metrics of the process that answers."""


METRICS = Operation(
    "metrics.show", "GET", "/metrics", scope="read", request=ShowMetrics, response=str, public=False
)


@route("GET", "/healthz")
async def show_health(request: ApiRequest) -> Response:
    """Return 200 if the process answers, and how many processes are ready if the server has several."""
    health: dict[str, str | int] = {"status": "ok", "version": VERSION}
    if (siblings := request.services.siblings) is not None:
        health["processes"] = sum(each.state == "ready" for each in siblings.list())
    return make_json_response(health)


@route("GET", "/readyz")
async def show_readiness(request: ApiRequest) -> Response:
    """Return 200 if the database accepts writes in time."""
    if fault := await get_services(request).readiness.find_fault():
        return make_json_response({"status": fault}, 503, {"retry-after": "3"})
    return make_json_response({"status": "ok"})


@serve(METRICS)
async def show_metrics(wanted: ShowMetrics, request: ApiRequest) -> Response:
    """Return the metrics, labelled with their process if the server has several. A token limited to agents gets the
    metrics of those agents only."""
    context = get_context(request)
    if context.principal.only_owner is not None:  # the metrics cover all users
        raise Refusal(
            404,
            "NotFound",
            "A token with the visibility `own` has no metrics. Use a token with the visibility `all`.",
        )
    page, siblings = context.metrics.render(context.principal.agents), request.services.siblings
    if siblings is not None and not wanted.alone:
        pages = {**await siblings.fetch_metrics(request.scope), siblings.number: page}
        page = merge_pages({str(number): pages[number] for number in sorted(pages)})
    return Response(page, media_type=METRICS_TYPE)


ROUTES = [show_health, show_readiness, show_metrics]
