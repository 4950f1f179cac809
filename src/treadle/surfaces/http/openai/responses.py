"""`/v1/responses`: an agent answers like a model, in a session that the next response can continue."""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import structs
from starlette.responses import Response
from starlette.types import ASGIApp

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState
from treadle.domain.events import RunEnd, RunQueued, RunWaiting
from treadle.domain.ids import SessionId
from treadle.domain.runs import RunPart
from treadle.operations.not_found import unknown_run
from treadle.operations.service import LocalService
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.dependencies import ApiRequest, act_for_user, get_context, get_services
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, Sampling, apply_settings
from treadle.surfaces.http.openai.conversation import build_conversation
from treadle.surfaces.http.openai.deltas import Ended, Waiting
from treadle.surfaces.http.openai.images import fetch_images
from treadle.surfaces.http.openai.items import read_turns
from treadle.surfaces.http.openai.operations import (
    CANCEL_RESPONSE,
    RESPOND,
    SHOW_RESPONSE,
    OneResponse,
    Respond,
    ShowResponse,
)
from treadle.surfaces.http.openai.parameters import list_given, list_unsent, read_metadata
from treadle.surfaces.http.openai.refusals import InvalidParameterValue, Unsupported, find_run_failure
from treadle.surfaces.http.openai.response_schemas import (
    ConversationRef,
    ReasoningConfig,
    ResponseObject,
    ResponseRequest,
    make_output_message,
    make_response_error,
    make_response_id,
    make_response_usage,
    parse_response_id,
)
from treadle.surfaces.http.openai.response_stream import WAITING, ResponseWriter, end_response
from treadle.surfaces.http.openai.run_answer import (
    RunAnswer,
    RunRequest,
    describe_wait,
    find_open_session,
    outlives_client,
    start_run,
    stream_answer,
    wait_for_answer,
)
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

WITHOUT_EFFECT = (
    "include", "top_logprobs", "service_tier", "prompt_cache_key", "prompt_cache_retention", "truncation",
    "max_tool_calls",
)  # fmt: skip
"""Parameters that are accepted and change nothing."""
CANCEL_WAIT_SECONDS = 5.0
"""How long to wait for a cancelled run to end before returning its current state."""


@serve(RESPOND)
async def create_response(wanted: Respond, request: ApiRequest) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools. `previous_response_id` continues the session
    of that response, and `conversation` the session with that id; only new input is sent then. With `background`
    the server responds at once and the run continues. `store` has no effect: the journal keeps every run."""
    data = wanted.request
    _refuse_unsupported(data)
    act_for_user(request, data.user or data.safety_identifier)
    if data.stream:
        refuse_if_full(request)
    agent = apply_settings(get_context(request).visible_agent(data.model), _read_settings(data))
    background = bool(data.background)
    session_id, follows = await _find_session(data, request), await _find_followed(data, request)
    turns = await fetch_images(
        read_turns(data.input, data.instructions),
        agent.limits.max_attachment_bytes,
        request,
        continues=session_id is not None or follows is not None,
    )
    run_request = RunRequest(
        agent=agent,
        conversation=build_conversation(turns, "input"),
        session_id=session_id,
        follows=follows,
        metadata=read_metadata(data.metadata),
        keeps_running=background or outlives_client(request),
        ignored=(*list_given(data, WITHOUT_EFFECT), *list_unsent(agent, data, request)),
    )
    answer = await start_run(run_request, request)
    response = _echo_request(_start_response(answer, data.instructions), data)
    if data.stream:
        return await stream_answer(answer, ResponseWriter(answer.run_id, response), request)
    if background:
        return make_json_response(structs.replace(response, status="queued"), headers=answer.headers)
    match await wait_for_answer(answer, request):
        case Ended(end):
            whole = _end_response(response, answer, end)
        case Waiting(text):
            output = (make_output_message(_message_id(answer), text),)
            whole = structs.replace(response, status="incomplete", output=output, incomplete_details=WAITING)
    return make_json_response(whole, headers=answer.headers)


@serve(SHOW_RESPONSE)
async def show_response(wanted: ShowResponse, request: ApiRequest) -> Response:
    """Return the response of a run as recorded in the journal."""
    if wanted.stream:
        raise Unsupported("stream", "an existing response is returned whole. Stream the events of its run instead.")
    _, record = await _find_part(wanted.response, request)
    return make_json_response(await _current_response(record, request))


@serve(CANCEL_RESPONSE)
async def cancel_response(wanted: OneResponse, request: ApiRequest) -> Response:
    """Cancel a response. A response that has ended stays as it is."""
    _, record = await _find_part(wanted.response, request)
    service = get_services(request).service
    run_id = (await get_context(request).addressed_run(record.origin.run_id)).origin.run_id
    with suppress(InvalidState, TimeoutError):
        await service.cancel(run_id, "asked for by the client")
        async with asyncio.timeout(CANCEL_WAIT_SECONDS):
            await service.wait(run_id)
    return make_json_response(await _current_response(await service.run(run_id), request))


# ── The request ────────────────────────────────────────────────────────────────────────────────────


def _read_settings(data: ResponseRequest) -> RequestedSettings:
    effort = None if data.reasoning is None else data.reasoning.effort
    format = None if data.text is None else data.text.format
    sampling = Sampling(temperature=data.temperature, top_p=data.top_p)
    return RequestedSettings(sampling, data.max_output_tokens, effort, format, ("max_output_tokens", "text.format"))


def _refuse_unsupported(data: ResponseRequest) -> None:
    own_tools = "it calls its own tools. Leave the client's tools out."
    refused = (
        ("tools", bool(data.tools), own_tools),
        ("tool_choice", data.tool_choice not in (None, "none", "auto"), own_tools),
        ("prompt", data.prompt is not None, "it has its own persona. Send `instructions` in addition."),
    )
    for name, is_requested, why in refused:
        if is_requested:
            raise Unsupported(name, why)
    if data.previous_response_id is not None and data.conversation is not None:
        raise InvalidParameterValue(
            "conversation", "Send `previous_response_id` or `conversation`: each names what is continued."
        )


async def _find_session(data: ResponseRequest, request: ApiRequest) -> SessionId | None:
    if data.conversation is None:
        return None
    named = data.conversation if isinstance(data.conversation, str) else data.conversation.id
    return await find_open_session(named, request)


async def _find_followed(data: ResponseRequest, request: ApiRequest) -> RunPart | None:
    """Return the part of a run that the previous response is."""
    if data.previous_response_id is None:
        return None
    part, record = await _find_part(data.previous_response_id, request)
    await find_open_session(record.origin.session_id, request)
    return part


async def _find_part(response: str, request: ApiRequest) -> tuple[RunPart, RunRecord]:
    """Return the part of a run that a response is, if the caller may read it."""
    part = parse_response_id(response)
    record = await get_context(request).readable_run(part.run_id)
    if part.after > record.sequence:
        raise unknown_run(part.run_id)
    return part, record


# ── The response ───────────────────────────────────────────────────────────────────────────────────


def _start_response(answer: RunAnswer, instructions: str | None) -> ResponseObject:
    settings = answer.agent.model_settings
    return ResponseObject(
        make_response_id(RunPart(answer.run_id, answer.after)),
        answer.created,
        answer.agent.name,
        ConversationRef(answer.session_id),
        instructions=instructions or None,
        max_output_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        reasoning=ReasoningConfig(settings.reasoning),
        text={"format": _text_format(answer.agent)},
    )


def _text_format(agent: AgentSpec) -> dict[str, Any]:
    if agent.output is None:
        return {"type": "text"}
    return {"type": "json_schema", "name": "output", "schema": agent.output}


def _echo_request(response: ResponseObject, data: ResponseRequest) -> ResponseObject:
    """Return the response with the values that only the request has."""
    return structs.replace(
        response,
        previous_response_id=data.previous_response_id,
        background=bool(data.background),
        metadata=data.metadata or {},
    )


def _message_id(answer: RunAnswer) -> str:
    return f"out_{answer.run_id}"


def _end_response(response: ResponseObject, answer: RunAnswer, end: RunEnd) -> ResponseObject:
    usage, failure = make_response_usage(end.metrics), find_run_failure(answer.run_id, end)
    if failure is not None:
        if end.outcome == "cancelled":
            return structs.replace(response, status="cancelled", usage=usage)
        return structs.replace(response, status="failed", error=make_response_error(failure), usage=usage)
    return end_response(response, _message_id(answer), end)


async def _current_response(record: RunRecord, request: ApiRequest) -> ResponseObject:
    """Return the response as recorded in the journal."""
    service, origin = get_services(request).service, record.origin
    [first] = await service.page(origin.run_id, 0, 1)
    assert isinstance(first.data, RunQueued), f"the first event of {origin.run_id} is {first.type}"
    agent, created = first.data.agent, int(record.created_at)
    answer = RunAnswer(
        service=service,
        agent=agent,
        run_id=origin.run_id,
        session_id=origin.session_id,
        after=0,
        created=created,
        keeps_running=True,
    )
    response = _start_response(answer, first.data.instructions)
    response = structs.replace(response, metadata=dict(first.data.metadata))
    if record.outcome is not None:
        return _end_response(response, answer, (await service.wait(origin.run_id))[1])
    wait = await _describe_wait(record, service)
    output = (make_output_message(_message_id(answer), wait),) if wait else ()
    status = "queued" if record.status == "pending" else "in_progress"
    return structs.replace(response, status=status, output=output)


async def _describe_wait(record: RunRecord, service: LocalService) -> str:
    if record.waiting_for is None:
        return ""
    return await describe_wait(service, record.origin.run_id, RunWaiting(record.waiting_for, "", record.wake_at))


ROUTES = [create_response, show_response, cancel_response]
