"""For whoever keeps it running: is it there, can it work, what does it do."""

import asyncio

from litestar import Response, Router, get

from treadle import __version__
from treadle.domain.errors import StoreError
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks
from treadle.surfaces.http.problems import Refusal

READY_SECONDS = 2.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@get("/healthz", include_in_schema=False, sync_to_thread=False)
def healthy() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok", "version": __version__}


@get("/readyz", include_in_schema=False)
async def ready(request: Asked) -> Response[dict[str, str]]:
    """The database answers too, and soon."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await served_of(request).service.runs(limit=1)
    except (StoreError, TimeoutError):
        return Response({"status": "the database does not answer"}, status_code=503, headers={"Retry-After": "3"})
    return Response({"status": "ok"})


@get("/metrics", **asks("read", "Prometheus metrics"), media_type=METRICS_TYPE)
async def metrics(request: Asked) -> bytes:
    """A token that is limited to agents sees the figures of those agents only."""
    if principal_of(request).only_owner is not None:  # the numbers are of all users together
        raise Refusal(
            404,
            "NotFound",
            "A token with the visibility `own` has no metrics. Use a token with the visibility `all`.",
        )
    return served_of(request).watched.render(principal_of(request).agents)


ROUTES = Router("/", route_handlers=[healthy, ready, metrics], tags=["operations"])
