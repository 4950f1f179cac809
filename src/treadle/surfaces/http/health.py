"""Routes for operators: liveness, readiness and metrics."""

from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter

from treadle.domain.version import VERSION
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services
from treadle.surfaces.http.siblings import Siblings
from treadle.telemetry.exposition import merge_pages

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Alone = Annotated[bool, QueryParameter(description="Only the metrics of the process that answers.")]


@get("/healthz", include_in_schema=False, sync_to_thread=False)
def show_health(request: ApiRequest) -> dict[str, str | int]:
    """Return 200 if the process answers, and how many processes are ready if the server has several."""
    health: dict[str, str | int] = {"status": "ok", "version": VERSION}
    if (siblings := _find_siblings(request)) is not None:
        health["processes"] = sum(each.state == "ready" for each in siblings.list())
    return health


@get("/readyz", include_in_schema=False)
async def show_readiness(request: ApiRequest) -> Response[dict[str, str]]:
    """Return 200 if the database accepts writes in time."""
    if fault := await get_services(request).readiness.find_fault():
        return Response({"status": fault}, status_code=503, headers={"retry-after": "3"})
    return Response({"status": "ok"})


@get("/metrics", opt={"scope": "read"}, include_in_schema=False, media_type=METRICS_TYPE)
async def show_metrics(request: ApiRequest, alone: Alone = False) -> bytes:
    """Return the metrics, labelled with their process if the server has several. A token limited to agents gets the
    metrics of those agents only."""
    context = get_context(request)
    if context.principal.only_owner is not None:  # the metrics cover all users
        raise Refusal(
            404,
            "NotFound",
            "A token with the visibility `own` has no metrics. Use a token with the visibility `all`.",
        )
    own, siblings = context.metrics.render(context.principal.agents), _find_siblings(request)
    if alone or siblings is None:
        return own
    others = await siblings.fetch_metrics(request.scope)
    return merge_pages({str(number): page for number, page in sorted({**others, siblings.number: own}.items())})


def _find_siblings(request: ApiRequest) -> Siblings | None:
    return request.app.state.siblings


ROUTES = [show_health, show_readiness, show_metrics]
