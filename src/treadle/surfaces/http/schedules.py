"""Schedules: messages that are sent by themselves."""

from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody

from treadle.domain.schedules import ScheduleId
from treadle.operations.automation import NewSchedule, ScheduleView
from treadle.operations.schemas import Page
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks


@get("/v1/schedules", **asks("admin", "List schedules and the heartbeats of agents"))
async def list_schedules(request: Asked) -> Page[ScheduleView]:
    return Page(tuple(await served_of(request).automation.schedules.list()))


@post("/v1/schedules", status_code=201, **asks("admin", "Create a schedule", 404))
async def create(data: JSONBody[NewSchedule], request: Asked) -> ScheduleView:
    return await served_of(request).automation.schedules.add(data, principal_of(request).user)


@delete("/v1/schedules/{schedule_id:str}", **asks("admin", "Delete a schedule", 404))
async def remove(schedule_id: FromPath[str], request: Asked) -> None:
    """Runs that it has started continue."""
    await served_of(request).automation.schedules.remove(ScheduleId(schedule_id))


@post("/v1/schedules/{schedule_id:str}/pause", status_code=200, **asks("admin", "Pause a schedule", 404))
async def pause(schedule_id: FromPath[str], request: Asked) -> ScheduleView:
    return await served_of(request).automation.schedules.pause(ScheduleId(schedule_id))


@post("/v1/schedules/{schedule_id:str}/resume", status_code=200, **asks("admin", "Resume a schedule", 404))
async def resume(schedule_id: FromPath[str], request: Asked) -> ScheduleView:
    """Resumes with the next tick. Ticks that passed meanwhile are skipped."""
    return await served_of(request).automation.schedules.resume(ScheduleId(schedule_id))


ROUTES = Router("/", route_handlers=[list_schedules, create, remove, pause, resume], tags=["schedules"])
