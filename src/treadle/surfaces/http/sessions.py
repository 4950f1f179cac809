"""Sessions: the sequence of their runs."""

from typing import Annotated

from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from treadle.domain.errors import UnknownSession
from treadle.domain.ids import SessionId
from treadle.operations.retention import Deleted, Pruned
from treadle.operations.schemas import (
    Page,
    Prune,
    RunView,
    SessionDetail,
    SessionView,
    run_view,
    segment_view,
    session_detail,
    session_view,
)
from treadle.ports.journal import RunRecord
from treadle.ports.sessions import SessionRecord
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, said_by, served_of, unknown_session
from treadle.surfaces.http.openapi import asks

Cursor = Annotated[str | None, QueryParameter(description="`next` of the page before.", max_length=200)]
Limit = Annotated[int, QueryParameter(ge=1, le=500, description="How many.")]


@get("/v1/sessions", **asks("read", "List sessions, latest first"))
async def list_sessions(request: Asked, cursor: Cursor = None, limit: Limit = 50) -> Page[SessionView]:
    before = None if cursor is None else SessionId(cursor)
    principal = principal_of(request)
    found = await served_of(request).service.sessions(limit + 1, before, principal.agents, principal.only_owner)
    views = tuple(map(session_view, found[:limit]))
    return Page(views, views[-1].session_id if len(found) > limit else None)


@get("/v1/sessions/{session_id:str}", **asks("read", "Get a session", 404))
async def show(session_id: FromPath[str], request: Asked) -> SessionDetail:
    record = await _seen(session_id, request)
    segments = await served_of(request).service.segments(record.session_id)
    if principal_of(request).agents is not None:
        theirs = {run.origin.run_id for run in await _runs_seen(record, request)}
        segments = [segment for segment in segments if segment.run_id in theirs]
    return session_detail(record, tuple(map(segment_view, segments)))


@delete(
    "/v1/sessions/{session_id:str}",
    status_code=200,
    **asks("admin", "Delete a session permanently", 404, 409),
)
async def remove(session_id: FromPath[str], request: Asked) -> Deleted:
    """Deletes its runs, events, results and memories."""
    by = said_by("", principal_of(request))
    return await served_of(request).house.delete_session(SessionId(session_id), by)


@post("/v1/prune", status_code=200, **asks("admin", "Delete old sessions permanently"))
async def prune(data: JSONBody[Prune], request: Asked) -> Pruned:
    """Deletes sessions without a run in progress in which nothing has happened for the given time."""
    by = said_by("", principal_of(request))
    return await served_of(request).house.prune(data.older_than, data.agent, by)


@get("/v1/sessions/{session_id:str}/runs", **asks("read", "List the runs of a session", 404))
async def runs(session_id: FromPath[str], request: Asked) -> Page[RunView]:
    """In the order in which they were submitted."""
    return Page(tuple(map(run_view, await _runs_seen(await _seen(session_id, request), request))))


async def _runs_seen(record: SessionRecord, request: Asked) -> list[RunRecord]:
    principal = principal_of(request)
    found = await served_of(request).service.runs_of(record.session_id)
    return [run for run in found if principal.sees(run.agent) and principal.sees_owner(run.owner)]


async def _seen(session_id: FromPath[str], request: Asked) -> SessionRecord:
    """A session, if it exists for whoever asks; as `seen_run` does."""
    principal = principal_of(request)
    try:
        record = await served_of(request).service.session(SessionId(session_id))
    except UnknownSession:
        if principal.sees_all:
            raise
        raise unknown_session(session_id) from None
    if not (principal.sees(record.agent) and principal.sees_owner(record.owner)):
        raise unknown_session(session_id)
    return record


ROUTES = Router("/", route_handlers=[list_sessions, show, runs, remove, prune], tags=["sessions"])
