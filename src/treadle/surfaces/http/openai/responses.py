"""`/v1/responses`: an agent answers as a model would, in a session that the next response may go on in."""

import asyncio
from contextlib import suppress
from typing import Any

from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ASGIApp
from msgspec import structs

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState, UnknownRun
from treadle.domain.events import RunEnd, RunQueued, RunWaiting
from treadle.domain.ids import SessionId
from treadle.operations.service import LocalService
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.dependencies import Asked, context_of, services_of
from treadle.surfaces.http.openai.agent_limits import Wishes, fitted
from treadle.surfaces.http.openai.conversation import conversation
from treadle.surfaces.http.openai.deltas import Over, Stands
from treadle.surfaces.http.openai.items import turns_of
from treadle.surfaces.http.openai.refusals import Unsupported, Wrong, failure_of
from treadle.surfaces.http.openai.response_schemas import (
    ConversationRef,
    ReasoningConfig,
    ResponseObject,
    ResponseRequest,
    message,
    response_error,
    response_id,
    response_usage,
)
from treadle.surfaces.http.openai.response_stream import CUT, WAITING, ResponseWriter
from treadle.surfaces.http.openai.route_docs import SPOKEN, said
from treadle.surfaces.http.openai.run_answer import (
    ON_DISCONNECT,
    Going,
    Wanted,
    answered,
    begin,
    in_words,
    session_to_go_on_in,
    streamed,
)
from treadle.surfaces.http.streams import refuse_if_full

PREFIX = "resp_"
CANCELLED_SECONDS = 5.0
"""For so long a cancelled run may take to end before it is shown as it is."""


@post("/v1/responses", status_code=200, **SPOKEN)
async def create(data: JSONBody[ResponseRequest], request: Asked) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools. `previous_response_id` continues the session
    of that response, and `conversation` the session with that id; only new input is sent then. With `background`
    the server responds at once and the run continues. `store` has no effect: the journal keeps every run."""
    _refuse_unsupported(data)
    if data.stream:
        refuse_if_full(request)
    agent = fitted(context_of(request).visible_agent(data.model), _wishes(data))
    background = bool(data.background)
    stays = background or request.headers.get(ON_DISCONNECT, "").lower() == "keep"
    talk = conversation(turns_of(data.input, data.instructions), "input")
    going = await begin(Wanted(agent, talk, await _session(data, request), stays), request)
    response = _echoed(_begun(going, data.instructions), data)
    if data.stream:
        return await streamed(going, ResponseWriter(going.run_id, response), request)
    if background:
        return said(structs.replace(response, status="queued"), going.headers)
    match await answered(going, request):
        case Over(end):
            whole = _ended(response, going, end)
        case Stands(text):
            output = (message(_message_id(going), text),)
            whole = structs.replace(response, status="incomplete", output=output, incomplete_details=WAITING)
    return said(whole, going.headers)


@get("/v1/responses/{response:str}", **SPOKEN)
async def show(response: FromPath[str], request: Asked, stream: FromQuery[bool] = False) -> ResponseObject:
    """The response of a run as recorded in the journal."""
    if stream:
        raise Unsupported("stream", "a response that was begun before is shown whole; follow its run instead.")
    return await _now(await _run_of(response, request), request)


@post("/v1/responses/{response:str}/cancel", status_code=200, **SPOKEN)
async def cancel(response: FromPath[str], request: Asked) -> ResponseObject:
    """One that has ended stays as it is."""
    record, service = await _run_of(response, request), services_of(request).service
    run_id = record.origin.run_id
    with suppress(InvalidState, TimeoutError):
        await service.cancel(run_id, "asked for by the client")
        async with asyncio.timeout(CANCELLED_SECONDS):
            await service.wait(run_id)
    return await _now(await service.run(run_id), request)


# ── What is asked ──────────────────────────────────────────────────────────────────────────────────


def _wishes(data: ResponseRequest) -> Wishes:
    effort = None if data.reasoning is None else data.reasoning.effort
    format = None if data.text is None else data.text.format
    return Wishes(data.max_output_tokens, data.temperature, effort, format, ("max_output_tokens", "text.format"))


def _refuse_unsupported(data: ResponseRequest) -> None:
    own_tools = "it has tools of its own, and calls them itself; leave yours out."
    unseen = "what its models weigh is not shown."
    wants_weights = any("logprobs" in each for each in data.include or ())
    refused = (
        ("tools", bool(data.tools), own_tools),
        ("tool_choice", data.tool_choice not in (None, "none", "auto"), own_tools),
        ("include", wants_weights, unseen),
        ("top_logprobs", bool(data.top_logprobs), unseen),
        ("top_p", data.top_p not in (None, 1), "its own settings say how it samples."),
        ("prompt", data.prompt is not None, "it has a persona of its own; send `instructions` beside it."),
    )
    for name, is_asked, why in refused:
        if is_asked:
            raise Unsupported(name, why)
    if data.previous_response_id is not None and data.conversation is not None:
        raise Wrong("conversation", "Send `previous_response_id` or `conversation`: each names a session.")


async def _session(data: ResponseRequest, request: Asked) -> SessionId | None:
    if data.previous_response_id is not None:
        record = await _run_of(data.previous_response_id, request)
        return await session_to_go_on_in(record.origin.session_id, request)
    if data.conversation is None:
        return None
    named = data.conversation if isinstance(data.conversation, str) else data.conversation.id
    return await session_to_go_on_in(named, request)


async def _run_of(response: str, request: Asked) -> RunRecord:
    if not response.startswith(PREFIX):
        raise UnknownRun(f"There is no response {response}: their ids begin with {PREFIX}")
    return await context_of(request).readable_run(response.removeprefix(PREFIX))


# ── What is answered ───────────────────────────────────────────────────────────────────────────────


def _begun(going: Going, instructions: str | None) -> ResponseObject:
    settings = going.agent.model_settings
    return ResponseObject(
        response_id(going.run_id),
        going.created,
        going.agent.name,
        ConversationRef(going.session_id),
        instructions=instructions or None,
        max_output_tokens=settings.max_tokens,
        temperature=settings.temperature,
        reasoning=ReasoningConfig(settings.reasoning),
        text={"format": _format(going.agent)},
    )


def _format(agent: AgentSpec) -> dict[str, Any]:
    if agent.output is None:
        return {"type": "text"}
    return {"type": "json_schema", "name": "output", "schema": agent.output}


def _echoed(response: ResponseObject, data: ResponseRequest) -> ResponseObject:
    """With what only the request says."""
    return structs.replace(
        response,
        previous_response_id=data.previous_response_id,
        background=bool(data.background),
        metadata=data.metadata or {},
    )


def _message_id(going: Going) -> str:
    return f"out_{going.run_id}"


def _ended(response: ResponseObject, going: Going, end: RunEnd) -> ResponseObject:
    usage, failure = response_usage(end.metrics), failure_of(going.run_id, end)
    if failure is not None:
        if end.outcome == "cancelled":
            return structs.replace(response, status="cancelled", usage=usage)
        return structs.replace(response, status="failed", error=response_error(failure), usage=usage)
    cut = end.outcome == "truncated"
    status = "incomplete" if cut else "completed"
    output = (message(_message_id(going), end.text, status),) if end.text else ()
    details = CUT if cut else None
    return structs.replace(response, status=status, output=output, incomplete_details=details, usage=usage)


async def _now(record: RunRecord, request: Asked) -> ResponseObject:
    """A response as the journal has it."""
    service, origin = services_of(request).service, record.origin
    [first] = await service.page(origin.run_id, 0, 1)
    assert isinstance(first.data, RunQueued), f"the first event of {origin.run_id} is {first.type}"
    agent, created = first.data.agent, int(record.created_at)
    going = Going(service, agent, origin.run_id, origin.session_id, 0, created, stays=True)
    response = _begun(going, first.data.instructions)
    if record.outcome is not None:
        return _ended(response, going, (await service.wait(origin.run_id))[1])
    words = await _waits_for(record, service)
    output = (message(_message_id(going), words),) if words else ()
    status = "queued" if record.status == "pending" else "in_progress"
    return structs.replace(response, status=status, output=output)


async def _waits_for(record: RunRecord, service: LocalService) -> str:
    if record.waiting_for is None:
        return ""
    return await in_words(service, record.origin.run_id, RunWaiting(record.waiting_for, "", record.wake_at))


ROUTES = [create, show, cancel]
