"""Routes for operators: liveness, readiness and metrics."""

from litestar import Response, get

from treadle.domain.version import VERSION
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@get("/healthz", include_in_schema=False, sync_to_thread=False)
def show_health() -> dict[str, str]:
    """Return 200 if the process answers."""
    return {"status": "ok", "version": VERSION}


@get("/readyz", include_in_schema=False)
async def show_readiness(request: ApiRequest) -> Response[dict[str, str]]:
    """Return 200 if the database accepts writes in time."""
    if fault := await get_services(request).readiness.find_fault():
        return Response({"status": fault}, status_code=503, headers={"retry-after": "3"})
    return Response({"status": "ok"})


@get("/metrics", opt={"scope": "read"}, include_in_schema=False, media_type=METRICS_TYPE)
async def show_metrics(request: ApiRequest) -> bytes:
    """Return the metrics. A token limited to agents gets the metrics of those agents only."""
    context = get_context(request)
    if context.principal.only_owner is not None:  # the metrics cover all users
        raise Refusal(
            404,
            "NotFound",
            "A token with the visibility `own` has no metrics. Use a token with the visibility `all`.",
        )
    return context.metrics.render(context.principal.agents)


ROUTES = [show_health, show_readiness, show_metrics]
