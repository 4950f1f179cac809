"""`/v1/responses`: an agent answers like a model, in a session that the next response can continue."""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import structs
from starlette.responses import Response
from starlette.types import ASGIApp

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState, UnknownRun
from treadle.domain.events import RunEnd, RunQueued, RunWaiting
from treadle.domain.ids import SessionId
from treadle.operations.service import LocalService
from treadle.ports.journal import RunRecord
from treadle.surfaces.http.dependencies import ApiRequest, act_for_user, get_context, get_services
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, apply_settings
from treadle.surfaces.http.openai.conversation import build_conversation
from treadle.surfaces.http.openai.deltas import Ended, Waiting
from treadle.surfaces.http.openai.items import read_turns
from treadle.surfaces.http.openai.operations import (
    CANCEL_RESPONSE,
    RESPOND,
    SHOW_RESPONSE,
    OneResponse,
    Respond,
    ShowResponse,
)
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
)
from treadle.surfaces.http.openai.response_stream import WAITING, ResponseWriter, end_response
from treadle.surfaces.http.openai.run_answer import (
    ON_DISCONNECT_HEADER,
    RunAnswer,
    RunRequest,
    describe_wait,
    find_open_session,
    start_run,
    stream_answer,
    wait_for_answer,
)
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

PREFIX = "resp_"
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
    keeps_running = background or request.headers.get(ON_DISCONNECT_HEADER, "").lower() == "keep"
    conversation = build_conversation(read_turns(data.input, data.instructions), "input")
    answer = await start_run(
        RunRequest(agent, conversation, await _find_session(data, request), keeps_running), request
    )
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
    return make_json_response(await _current_response(await _find_run(wanted.response, request), request))


@serve(CANCEL_RESPONSE)
async def cancel_response(wanted: OneResponse, request: ApiRequest) -> Response:
    """Cancel a response. A response that has ended stays as it is."""
    record, service = await _find_run(wanted.response, request), get_services(request).service
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
    return RequestedSettings(
        data.max_output_tokens, data.temperature, effort, format, ("max_output_tokens", "text.format")
    )


def _refuse_unsupported(data: ResponseRequest) -> None:
    own_tools = "it calls its own tools. Leave the client's tools out."
    no_logprobs = "log probabilities are not available."
    wants_logprobs = any("logprobs" in each for each in data.include or ())
    refused = (
        ("tools", bool(data.tools), own_tools),
        ("tool_choice", data.tool_choice not in (None, "none", "auto"), own_tools),
        ("include", wants_logprobs, no_logprobs),
        ("top_logprobs", bool(data.top_logprobs), no_logprobs),
        ("top_p", data.top_p not in (None, 1), "its own settings control sampling."),
        ("prompt", data.prompt is not None, "it has its own persona. Send `instructions` in addition."),
    )
    for name, is_requested, why in refused:
        if is_requested:
            raise Unsupported(name, why)
    if data.previous_response_id is not None and data.conversation is not None:
        raise InvalidParameterValue(
            "conversation", "Send `previous_response_id` or `conversation`: each names a session."
        )


async def _find_session(data: ResponseRequest, request: ApiRequest) -> SessionId | None:
    if data.previous_response_id is not None:
        record = await _find_run(data.previous_response_id, request)
        return await find_open_session(record.origin.session_id, request)
    if data.conversation is None:
        return None
    named = data.conversation if isinstance(data.conversation, str) else data.conversation.id
    return await find_open_session(named, request)


async def _find_run(response: str, request: ApiRequest) -> RunRecord:
    if not response.startswith(PREFIX):
        raise UnknownRun(f"There is no response {response}: ids of responses start with {PREFIX}")
    return await get_context(request).readable_run(response.removeprefix(PREFIX))


# ── The response ───────────────────────────────────────────────────────────────────────────────────


def _start_response(answer: RunAnswer, instructions: str | None) -> ResponseObject:
    settings = answer.agent.model_settings
    return ResponseObject(
        make_response_id(answer.run_id),
        answer.created,
        answer.agent.name,
        ConversationRef(answer.session_id),
        instructions=instructions or None,
        max_output_tokens=settings.max_tokens,
        temperature=settings.temperature,
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
