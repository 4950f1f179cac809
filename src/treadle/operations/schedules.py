"""Schedules: messages that are sent to agents at set times."""

from msgspec import Struct

from treadle.domain.schedules import ScheduleId
from treadle.operations.automation import NewSchedule, ScheduleView
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class OneSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    schedule_id: ScheduleId


LIST = Operation(
    "schedules.list",
    "GET",
    "/v1/schedules",
    scope="admin",
    request=NoParameters,
    response=Page[ScheduleView],
)
CREATE = Operation(
    "schedules.create",
    "POST",
    "/v1/schedules",
    scope="admin",
    request=NewSchedule,
    response=ScheduleView,
    status=201,
    errors=(404,),
)
REMOVE = Operation(
    "schedules.remove",
    "DELETE",
    "/v1/schedules/{schedule_id}",
    scope="admin",
    request=OneSchedule,
    response=type(None),
    errors=(404,),
)
PAUSE = Operation(
    "schedules.pause",
    "POST",
    "/v1/schedules/{schedule_id}/pause",
    scope="admin",
    request=OneSchedule,
    response=ScheduleView,
    errors=(404,),
)
RESUME = Operation(
    "schedules.resume",
    "POST",
    "/v1/schedules/{schedule_id}/resume",
    scope="admin",
    request=OneSchedule,
    response=ScheduleView,
    errors=(404,),
)


@LIST.handler
async def list_schedules(context: Context, request: NoParameters) -> Page[ScheduleView]:
    """List schedules and the heartbeats of agents."""
    return Page(tuple(await context.automation().schedules.list()))


@CREATE.handler
async def create_schedule(context: Context, request: NewSchedule) -> ScheduleView:
    """Create a schedule."""
    context.refuse_anonymous()
    return await context.automation().schedules.add(request, context.principal.user)


@REMOVE.handler
async def remove_schedule(context: Context, request: OneSchedule) -> None:
    """Remove a schedule.

    Runs that it started continue."""
    await context.automation().schedules.remove(request.schedule_id)


@PAUSE.handler
async def pause_schedule(context: Context, request: OneSchedule) -> ScheduleView:
    """Pause a schedule."""
    return await context.automation().schedules.pause(request.schedule_id)


@RESUME.handler
async def resume_schedule(context: Context, request: OneSchedule) -> ScheduleView:
    """Resume a schedule.

    It continues with its next tick. Ticks that passed while it was paused are not made up for."""
    return await context.automation().schedules.resume(request.schedule_id)
