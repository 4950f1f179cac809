"""Routes of runs whose result a caller can wait for. The other operations on runs have plain routes."""

import asyncio
from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.operations.run_control import START, Accepted, NewRun, continued_run, make_part
from treadle.operations.runs import LONGEST_WAIT, SHOW, run_detail
from treadle.operations.submissions import Submission
from treadle.surfaces.http.agent_overrides import apply_overrides
from treadle.surfaces.http.auth import get_streams
from treadle.surfaces.http.dependencies import ApiRequest, find_asker, get_context
from treadle.surfaces.http.operation_routes import make_response

Wait = Annotated[float | None, QueryParameter(ge=0, le=LONGEST_WAIT)]


@post("/v1/agents/{name:str}/runs", status_code=202, opt={"scope": "run"}, include_in_schema=False)
async def submit_run(
    name: FromPath[str], data: JSONBody[NewRun], request: ApiRequest, wait: Wait = None
) -> Response[bytes | None]:
    """Serve `runs.start`."""
    context = get_context(request).for_user(data.user)
    agent, principal = context.visible_agent(name), context.principal
    session = None if data.session_id is None else await context.open_session(data.session_id)
    ticket = await context.service.submit(
        Submission(
            apply_overrides(data.overrides, agent, principal),
            user(data.message, *map(make_part, data.attachments)),
            session,
            context.key,
            asker=find_asker(request),
            token=principal.token_id,
            token_quotas=principal.quotas,
            user=principal.user,
            anonymous=principal.is_anonymous,
            only_own=principal.only_owner is not None,
            has_own_model=data.overrides is not None and data.overrides.model is not None,
            after_current=data.after_current,
            resumed_from=await continued_run(context, data),
        )
    )
    seconds = data.wait if wait is None else wait
    if seconds:
        end = await _wait_for_end(seconds, ticket.run_id, request)
        detail = await run_detail(context, await context.service.run(ticket.run_id))
        return make_response(START, detail, 202 if end is None else 200)
    return make_response(START, Accepted(ticket.run_id, ticket.session_id))


@get("/v1/runs/{run_id:str}", opt={"scope": "read"}, include_in_schema=False)
async def show_run(run_id: FromPath[str], request: ApiRequest, wait: Wait = None) -> Response[bytes | None]:
    """Serve `runs.show`."""
    context = get_context(request)
    record = await context.visible_run(run_id)
    if wait and record.outcome is None:
        await _wait_for_end(wait, record.origin.run_id, request)
        record = await context.service.run(record.origin.run_id)
    return make_response(SHOW, await run_detail(context, record))


async def _wait_for_end(seconds: float, run_id: RunId, request: ApiRequest) -> RunEnd | None:
    """Wait for the end of a run. Return None if the time passes, the client disconnects or the server stops
    first."""
    ending = asyncio.ensure_future(get_context(request).service.wait(run_id))
    leaving = asyncio.ensure_future(_wait_for_disconnect(request))
    closing = asyncio.ensure_future(get_streams(request).closed.wait())
    try:
        await asyncio.wait((ending, leaving, closing), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return ending.result()[1] if ending.done() else None
    finally:
        for task in (ending, leaving, closing):
            task.cancel()


async def _wait_for_disconnect(request: ApiRequest) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


ROUTES = [submit_run, show_run]
