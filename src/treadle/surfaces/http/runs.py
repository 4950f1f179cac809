"""Runs over HTTP: asked for, looked at, steered."""

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated, Any

import msgspec
from litestar import Response, Router, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from treadle.domain.envelope import to_json
from treadle.domain.errors import UsageError
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId, SessionId
from treadle.domain.messages import Image, Text, user
from treadle.domain.runs import OutcomeKind, Status
from treadle.operations import Submission
from treadle.operations.run_records import RunSteps, records_of
from treadle.operations.schemas import (
    LONGEST_WAIT,
    Accepted,
    AnswerBody,
    Attachment,
    Delivered,
    NewRun,
    Page,
    Question,
    Reason,
    RunDetail,
    RunView,
    Steer,
    run_detail,
    run_view,
)
from treadle.ports.journal import RunFilter
from treadle.surfaces.http.agent_overrides import overridden_by
from treadle.surfaces.http.auth import principal_of, streams_of
from treadle.surfaces.http.dependencies import (
    Asked,
    agents_of,
    open_session,
    said_by,
    seen_agent,
    seen_run,
    served_of,
)
from treadle.surfaces.http.idempotency import submission_key
from treadle.surfaces.http.openapi import asks

Limit = Annotated[int, QueryParameter(ge=1, le=500, description="How many.")]
Cursor = Annotated[str | None, QueryParameter(description="`next` of the page before.", max_length=200)]
Wait = Annotated[float | None, QueryParameter(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the end.")]
MOST_LISTED = 500


@post(
    "/v1/agents/{name:str}/runs",
    status_code=202,
    **asks("run", "Send an agent a message", 402, 404, 409, 422),
)
async def submit(
    name: FromPath[str], data: JSONBody[NewRun], request: Asked, wait: Wait = None
) -> Response[Accepted | RunDetail]:
    """Start a run, or send the message to the waiting run of the session. With `wait`, respond when the run has
    ended (200) or after that many seconds (202), with the state of the run and what it waits for."""
    served, principal = served_of(request), principal_of(request)
    agent = seen_agent(name, request)
    session = None if data.session_id is None else await open_session(data.session_id, request)
    ticket = await served.service.submit(
        Submission(
            overridden_by(data.overrides, agent, principal),
            user(data.message, *map(_attached, data.attachments)),
            session,
            submission_key(request),
            token=principal.token_id,
            token_quotas=principal.quotas,
            user=principal.user,
            only_own=principal.only_owner is not None,
        )
    )
    seconds = data.wait if wait is None else wait
    if seconds:
        end = await _end_within(seconds, ticket.run_id, request)
        detail = run_detail(await served.service.run(ticket.run_id), end)
        return Response(detail, status_code=202 if end is None else 200)
    return Response(Accepted(ticket.run_id, ticket.session_id), status_code=202)


async def _end_within(seconds: float, run_id: RunId, request: Asked) -> RunEnd | None:
    """How a run ends; None: it has not, when that time is over, whoever asked has gone or the server stops."""
    ending = asyncio.ensure_future(served_of(request).service.wait(run_id))
    leaving = asyncio.ensure_future(_left(request))
    closing = asyncio.ensure_future(streams_of(request).closed.wait())
    try:
        await asyncio.wait((ending, leaving, closing), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return ending.result()[1] if ending.done() else None
    finally:
        for task in (ending, leaving, closing):
            task.cancel()


async def _left(request: Asked) -> None:
    """Return when whoever asked has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _attached(attachment: Attachment) -> Image | Text:
    match attachment:
        case Attachment(media_type=str(kind), data=str(data), name=None, text=None) if kind.startswith("image/"):
            try:
                b64decode(data, validate=True)
            except (NotBase64, ValueError):
                raise UsageError("The data of an attached picture is not base64.") from None
            return Image(kind, data)
        case Attachment(media_type=None, data=None, name=str(name), text=str(text)):
            return Text(f"\n\nAttached file {name}:\n{text}")
        case _:
            raise UsageError(
                "An attachment is a picture (media_type image/… and data as base64) or a text file (name and text)."
            )


@get("/v1/runs", **asks("read", "List runs, newest first"))
async def list_runs(
    request: Asked,
    agent: FromQuery[str | None] = None,
    session_id: FromQuery[str | None] = None,
    status: FromQuery[Status | None] = None,
    outcome: FromQuery[OutcomeKind | None] = None,
    unfinished: FromQuery[bool] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[RunView]:
    wanted = RunFilter(
        agents_of(principal_of(request), agent),
        None if session_id is None else SessionId(session_id),
        None,
        status,
        outcome,
        None if cursor is None else RunId(cursor),
        unfinished,
        principal_of(request).only_owner,
    )
    return await _page(request, wanted, limit)


@get("/v1/runs/{run_id:str}/children", **asks("read", "List the child runs of a run", 404))
async def children(
    run_id: FromPath[str],
    request: Asked,
    unfinished: FromQuery[bool] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[RunView]:
    """Direct child runs, newest first."""
    parent = (await seen_run(run_id, request)).origin.run_id
    before = None if cursor is None else RunId(cursor)
    principal = principal_of(request)
    wanted = RunFilter(
        principal.agents, None, parent, before=before, unfinished=unfinished, owner=principal.only_owner
    )
    return await _page(request, wanted, limit)


async def _page(request: Asked, wanted: RunFilter, limit: int) -> Page[RunView]:
    found = await served_of(request).service.runs(wanted, limit + 1)
    views = tuple(run_view(record) for record in found[:limit])
    return Page(views, views[-1].run_id if len(found) > limit else None)


@get("/v1/runs/{run_id:str}", **asks("read", "Get a run with its outcome", 404))
async def show(run_id: FromPath[str], request: Asked, wait: Wait = None) -> RunDetail:
    record = await seen_run(run_id, request)
    service = served_of(request).service
    if wait and record.outcome is None:
        await _end_within(wait, record.origin.run_id, request)
        record = await service.run(record.origin.run_id)
    end = None if record.outcome is None else (await service.wait(record.origin.run_id))[1]
    return run_detail(record, end)


@get(
    "/v1/runs/{run_id:str}/journal",
    **asks("read", "List the durable events of a run, by page", 404),
)
async def journal(
    run_id: FromPath[str],
    request: Asked,
    after: Annotated[int, QueryParameter(ge=0, description="Only those after this sequence.")] = 0,
    limit: Limit = 100,
) -> Page[dict[str, Any]]:
    record = await seen_run(run_id, request)
    found = await served_of(request).service.page(record.origin.run_id, after, limit)
    items = tuple(msgspec.json.decode(to_json(event)) for event in found)
    last = found[-1].sequence if found else after
    return Page(items, str(last) if last < record.sequence else None)


@get("/v1/runs/{run_id:str}/steps", **asks("read", "List the steps of a run", 404))
async def steps(run_id: FromPath[str], request: Asked) -> RunSteps:
    """Model, tokens, time, attempts and tool calls of each step, and the totals."""
    record, served = await seen_run(run_id, request), served_of(request)
    events = [event async for event in served.service.stored(record.origin.run_id)]
    return records_of(events, None if record.outcome is not None else served.now())


@get("/v1/runs/{run_id:str}/questions", **asks("read", "List the open questions of a run", 404))
async def questions(run_id: FromPath[str], request: Asked) -> Page[Question]:
    record = await seen_run(run_id, request)
    asked = await served_of(request).service.questions(record.origin.run_id)
    return Page(tuple(Question(each.call_id, each.question, tuple(each.options)) for each in asked))


@post(
    "/v1/runs/{run_id:str}/messages",
    status_code=202,
    **asks("run", "Steer a run in progress", 404, 409, 422),
)
async def steer(run_id: FromPath[str], data: JSONBody[Steer], request: Asked) -> Delivered:
    record = await seen_run(run_id, request)
    service, key = served_of(request).service, submission_key(request)
    return Delivered(await service.steer(record.origin.run_id, user(data.message), data.mode, key))


@post(
    "/v1/runs/{run_id:str}/interrupt",
    status_code=202,
    **asks("run", "Interrupt a run", 404, 409, 422),
)
async def interrupt(run_id: FromPath[str], request: Asked, data: JSONBody[Reason | None] = None) -> Delivered:
    record = await seen_run(run_id, request)
    reason = (data.reason if data else "") or f"interrupted by {principal_of(request).name}"
    return Delivered(await served_of(request).service.interrupt(record.origin.run_id, reason))


@post(
    "/v1/runs/{run_id:str}/resume",
    status_code=202,
    **asks("run", "Resume a run", 404, 409, 422),
)
async def resume(run_id: FromPath[str], request: Asked) -> Delivered:
    record = await seen_run(run_id, request)
    return Delivered(await served_of(request).service.resume(record.origin.run_id))


@post(
    "/v1/runs/{run_id:str}/cancel",
    status_code=202,
    **asks("run", "Cancel a run", 404, 409, 422),
)
async def cancel(run_id: FromPath[str], request: Asked, data: JSONBody[Reason | None] = None) -> Delivered:
    record = await seen_run(run_id, request)
    reason = (data.reason if data else "") or f"asked for by {principal_of(request).name}"
    return Delivered(await served_of(request).service.cancel(record.origin.run_id, reason))


@post(
    "/v1/runs/{run_id:str}/answers/{call_id:str}",
    status_code=202,
    **asks("approve", "Answer a question of an agent", 404, 409, 422),
)
async def answer(
    run_id: FromPath[str], call_id: FromPath[str], data: JSONBody[AnswerBody], request: Asked
) -> Delivered:
    record = await seen_run(run_id, request)
    by = said_by(data.by, principal_of(request))
    return Delivered(await served_of(request).service.answer(record.origin.run_id, call_id, data.text, by))


ROUTES = Router(
    "/",
    route_handlers=[
        submit, list_runs, children, show, journal, steps, questions, steer, interrupt, resume, cancel, answer,
    ],
    tags=["runs"],
)  # fmt: skip
