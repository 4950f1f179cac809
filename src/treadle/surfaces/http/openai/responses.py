"""`/v1/responses`: an agent answers like a model, in a session that the next response can continue."""

from msgspec import structs
from starlette.types import ASGIApp

from treadle.domain.ids import SessionId
from treadle.domain.runs import RunPart
from treadle.surfaces.http.dependencies import ApiRequest, act_for_user, get_context, get_services
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, Sampling, apply_settings
from treadle.surfaces.http.openai.conversation import build_conversation
from treadle.surfaces.http.openai.delivered_results import answer_request
from treadle.surfaces.http.openai.images import fetch_images
from treadle.surfaces.http.openai.items import list_left_out, read_turns
from treadle.surfaces.http.openai.offered_tools import read_tools
from treadle.surfaces.http.openai.operations import RESPOND, Respond
from treadle.surfaces.http.openai.parameters import list_given, list_unsent, read_metadata
from treadle.surfaces.http.openai.refusals import InvalidParameterValue, Unsupported
from treadle.surfaces.http.openai.response_parts import find_part, start_response
from treadle.surfaces.http.openai.response_schemas import ResponseObject, ResponseRequest, make_unstored_id
from treadle.surfaces.http.openai.response_stream import ResponseWriter
from treadle.surfaces.http.openai.response_tracker import ResponseTracker
from treadle.surfaces.http.openai.run_answer import (
    RunRequest,
    find_open_session,
    outlives_client,
    stream_answer,
    wait_for_answer,
    write_piece,
)
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

WITHOUT_EFFECT = (
    "include", "top_logprobs", "service_tier", "prompt_cache_key", "prompt_cache_retention", "truncation",
    "max_tool_calls",
)  # fmt: skip
"""Parameters that are accepted and change nothing."""


@serve(RESPOND)
async def create_response(wanted: Respond, request: ApiRequest) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools and asks the client to run those that the
    request brings. `previous_response_id` continues after that response, and `conversation` at the end of the
    session with that id; only new input is sent then. With `background` the server responds at once and the run
    continues. With `store: false` the response cannot be retrieved; the journal keeps its run."""
    data = wanted.request
    _refuse_unsupported(data)
    act_for_user(request, data.user or data.safety_identifier)
    if data.stream:
        refuse_if_full(request)
    chosen = await get_context(request).choose_agent(data.model)
    agent = apply_settings(chosen.spec, _read_settings(data))
    background, offered = bool(data.background), read_tools(data.tools, data.tool_choice)
    turns = read_turns(data.input, data.instructions)
    session_id, follows = await _find_session(data, request), await _find_followed(data, request)
    turns = await fetch_images(
        turns,
        agent.limits.max_attachment_bytes,
        request,
        continues=session_id is not None or follows is not None,
    )
    run_request = RunRequest(
        agent=agent,
        version=chosen.version,
        conversation=build_conversation(turns, "input", {tool.name for tool in offered.tools}),
        session_id=session_id,
        follows=follows,
        client_tools=offered.tools,
        tool_choice=offered.choice,
        metadata=read_metadata(data.metadata),
        keeps_running=background or outlives_client(request),
        ignored=(
            *list_given(data, WITHOUT_EFFECT),
            *list_unsent(agent, data, request),
            *offered.ignored,
            *list_left_out(data.input),
        ),
    )
    answer = await answer_request(turns, run_request, request)
    response = _echo_request(
        start_response(answer, run_request.conversation.instructions, offered.tools, offered.choice), data
    )
    tools = await get_services(request).service.client_tools_of(answer.run_id)
    writer, tracker = ResponseWriter(answer.run_id, response, tools), ResponseTracker(answer.agent)
    if data.stream:
        return await stream_answer(answer, tracker, writer, request)
    if background:
        return make_json_response(structs.replace(response, status="queued"), headers=answer.headers)
    for piece in await wait_for_answer(answer, tracker, request):
        write_piece(piece, writer, answer.run_id)
    return make_json_response(writer.response, headers=answer.headers)


# ── The request ────────────────────────────────────────────────────────────────────────────────────


def _read_settings(data: ResponseRequest) -> RequestedSettings:
    effort = None if data.reasoning is None else data.reasoning.effort
    format = None if data.text is None else data.text.format
    return RequestedSettings(
        sampling=Sampling(temperature=data.temperature, top_p=data.top_p),
        max_tokens=data.max_output_tokens,
        effort=effort,
        format=format,
        names=("max_output_tokens", "text.format"),
        parallel_calls=data.parallel_tool_calls,
    )


def _refuse_unsupported(data: ResponseRequest) -> None:
    if data.prompt is not None:
        raise Unsupported("prompt", "it has its own persona. Send `instructions` in addition.")
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
    part, record = await find_part(data.previous_response_id, request)
    await find_open_session(record.origin.session_id, request)
    return part


def _echo_request(response: ResponseObject, data: ResponseRequest) -> ResponseObject:
    """Return the response with the values that only the request has."""
    return structs.replace(
        response,
        id=response.id if data.store is not False else make_unstored_id(response.id),
        previous_response_id=data.previous_response_id,
        background=bool(data.background),
        metadata=data.metadata or {},
        store=data.store is not False,
        user=data.user,
        safety_identifier=data.safety_identifier,
        prompt_cache_key=data.prompt_cache_key,
    )


ROUTES = [create_response]
