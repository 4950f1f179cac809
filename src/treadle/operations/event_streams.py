"""Streams of events. Hand-written routes serve them; clients read them as server-sent events."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.transcript_stream import TranscriptChanges

AfterCursor = Annotated[str, Meta(description="Only events after this one: an id of this stream.")]
Live = Annotated[bool, Meta(description="Also events that are not stored: tokens as they are generated.")]
View = Annotated[
    Literal["events", "transcript"],
    Meta(description="`transcript`: changes of the transcript instead of events, as frames named `changes`."),
]
_IN_ORDER = "Durable events in the order of commits: those after a cursor, then new ones. With `live`, tokens too."


class FollowRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    after: Annotated[int, Meta(ge=0, description="Only events after this sequence.")] | None = None
    view: View = "events"


class FollowAgent(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    after: AfterCursor | None = None
    live: Live = False


class FollowAll(Struct, frozen=True, forbid_unknown_fields=True):
    after: AfterCursor | None = None
    live: Live = False


FOLLOW_RUN = Operation(
    "events.of_run",
    "GET",
    "/v1/runs/{run_id}/events",
    scope="read",
    request=FollowRun,
    response=str,
    errors=(404, 429),
    streams="always",
    header="Last-Event-ID",
    summary="Follow a run",
    description="Its events so far, then new ones, up to `run_end`. With `view=transcript`, the changes of its "
    "transcript: those of the events after `after`, one replacement of the items that are being written, then all "
    "further changes.",
    frames=(Event, TranscriptChanges),
)
FOLLOW_AGENT = Operation(
    "events.of_agent",
    "GET",
    "/v1/agents/{name}/events",
    scope="read",
    request=FollowAgent,
    response=str,
    errors=(404, 429),
    streams="always",
    header="Last-Event-ID",
    summary="Follow all runs of an agent",
    description=_IN_ORDER,
    frames=(Event,),
)
FOLLOW_ALL = Operation(
    "events.of_all",
    "GET",
    "/v1/events",
    scope="read",
    request=FollowAll,
    response=str,
    errors=(429,),
    streams="always",
    header="Last-Event-ID",
    summary="Follow all runs",
    description=_IN_ORDER,
    frames=(Event,),
)
METRICS = Operation(
    "events.metrics",
    "GET",
    "/metrics",
    scope="read",
    request=NoParameters,
    response=str,
    errors=(404,),
    tag="operations",
    summary="Get Prometheus metrics",
    description="A token that is limited to agents sees the metrics of its agents.",
)
