"""`POST /v1/chat/completions`: an agent answers like a model. Every request contains the whole conversation and
starts a session of its own, unless it names a session to continue."""

from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp

from treadle.domain.ids import SessionId
from treadle.surfaces.http.dependencies import ApiRequest, act_for_user, get_context, get_services
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, Sampling, apply_settings
from treadle.surfaces.http.openai.chat_answer import ChatWriter, make_completion
from treadle.surfaces.http.openai.chat_schemas import (
    ChatMessage,
    ChatRequest,
    ClientCall,
    ClientFunction,
    ContentPart,
    ImagePart,
    RefusalPart,
    TextPart,
)
from treadle.surfaces.http.openai.conversation import (
    MadeCall,
    Speaker,
    Turn,
    build_conversation,
    make_result,
    make_text_parts,
    read_image,
)
from treadle.surfaces.http.openai.conversation import TurnPart as Spoken
from treadle.surfaces.http.openai.delivered_results import answer_request
from treadle.surfaces.http.openai.deltas import DeltaTracker
from treadle.surfaces.http.openai.images import fetch_images
from treadle.surfaces.http.openai.offered_tools import read_tools
from treadle.surfaces.http.openai.operations import COMPLETE, Complete
from treadle.surfaces.http.openai.parameters import list_given, list_unsent, read_metadata
from treadle.surfaces.http.openai.refusals import InvalidParameterValue, Unsupported
from treadle.surfaces.http.openai.run_answer import (
    SESSION_HEADER,
    RunRequest,
    find_open_session,
    outlives_client,
    stream_answer,
    wait_for_answer,
)
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

WITHOUT_EFFECT = (
    "logprobs", "top_logprobs", "audio", "modalities", "prediction", "web_search_options", "service_tier",
    "verbosity", "prompt_cache_key", "prompt_cache_retention", "store",
)  # fmt: skip
"""Parameters that are accepted and change nothing."""


@serve(COMPLETE)
async def complete(wanted: Complete, request: ApiRequest) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools and asks the client to run those that the
    request brings. The header `X-Treadle-Session`, or `metadata.treadle_session`, continues a session; only the
    latest message of the request is used then. A client that disconnects cancels the run, unless the header
    `X-Treadle-On-Disconnect` is `keep`. `user` names the person whom the run is for."""
    data = wanted.request
    _refuse_unsupported(data)
    act_for_user(request, data.user or data.safety_identifier)
    if data.stream:
        refuse_if_full(request)
    chosen = await get_context(request).choose_agent(data.model)
    agent = apply_settings(chosen.spec, _read_settings(data))
    offered = read_tools(data.tools, data.tool_choice)
    turns = [turn for index, message in enumerate(data.messages) for turn in _read_turns(message, index)]
    session_id = await _find_session(data, request)
    turns = await fetch_images(turns, agent.limits.max_attachment_bytes, request, continues=session_id is not None)
    run_request = RunRequest(
        agent=agent,
        version=chosen.version,
        conversation=build_conversation(turns, "messages", {tool.name for tool in offered.tools}),
        session_id=session_id,
        client_tools=offered.tools,
        tool_choice=offered.choice,
        metadata=read_metadata(data.metadata),
        keeps_running=outlives_client(request),
        ignored=(
            *list_given(data, WITHOUT_EFFECT),
            *list_unsent(agent, data, request),
            *offered.ignored,
        ),
    )
    answer = await answer_request(turns, run_request, request)
    tracker = DeltaTracker(answer.agent)
    tools = await get_services(request).service.client_tools_of(answer.run_id)
    if data.stream:
        with_usage = data.stream_options is not None and bool(data.stream_options.include_usage)
        return await stream_answer(answer, tracker, ChatWriter(answer, data.model, with_usage, tools), request)
    pieces = await wait_for_answer(answer, tracker, request)
    body = make_completion(answer, data.model, pieces, tools)
    return make_json_response(body, headers=answer.headers)


def _read_settings(data: ChatRequest) -> RequestedSettings:
    name = "max_tokens" if data.max_completion_tokens is None else "max_completion_tokens"
    most = data.max_tokens if data.max_completion_tokens is None else data.max_completion_tokens
    sampling = Sampling(
        temperature=data.temperature,
        top_p=data.top_p,
        frequency_penalty=data.frequency_penalty,
        presence_penalty=data.presence_penalty,
        seed=data.seed,
        logit_bias=data.logit_bias,
        stop=data.stop,
    )
    return RequestedSettings(
        sampling=sampling,
        max_tokens=most,
        effort=data.reasoning_effort,
        format=data.response_format,
        names=(name, "response_format"),
        parallel_calls=data.parallel_tool_calls,
    )


async def _find_session(data: ChatRequest, request: ApiRequest) -> SessionId | None:
    named = request.headers.get(SESSION_HEADER) or (data.metadata or {}).get("treadle_session")
    if named is None:
        return None
    if not isinstance(named, str):
        raise InvalidParameterValue("metadata", "`metadata.treadle_session` must be the id of a session: ses_…")
    return await find_open_session(named, request)


def _refuse_unsupported(data: ChatRequest) -> None:
    refused = (
        ("functions", bool(data.functions), "they are an old form of `tools`. Send `tools`."),
        ("n", data.n not in (None, 1), "it returns one answer. Send the request several times."),
    )
    for name, is_requested, why in refused:
        if is_requested:
            raise Unsupported(name, why)


# ── The conversation ───────────────────────────────────────────────────────────────────────────────


def _read_turns(message: ChatMessage, index: int) -> Iterable[Turn]:
    where = f"messages[{index}].content"
    match message.content:
        case None:
            parts: tuple[Spoken, ...] = ()
        case str(text):
            parts = make_text_parts(text)
        case several:
            parts = tuple([_read_part(part, f"{where}[{place}]") for place, part in enumerate(several)])
    if message.role in ("tool", "function"):
        yield Turn("user", (make_result(message.tool_call_id or message.name or "", parts),))
        return
    calls = tuple(map(_read_call, message.tool_calls or ()))
    speaker: Speaker = "instructions" if message.role in ("system", "developer") else message.role  # pyright: ignore[reportAssignmentType] -- tool and function are handled above
    yield Turn(speaker, (*parts, *calls))


def _read_call(call: ClientCall) -> MadeCall:
    if call.custom is not None:
        return MadeCall(call.id, call.custom.name, msgspec.json.encode({"input": call.custom.input}).decode())
    function = call.function or ClientFunction()
    return MadeCall(call.id, function.name, function.arguments)


def _read_part(part: ContentPart, where: str) -> Spoken:
    match part:
        case TextPart(text) | RefusalPart(text):
            return make_text_parts(text)[0]
        case ImagePart(image):
            return read_image(image.url, where)
        case _:
            raise InvalidParameterValue(
                where, "A message may contain text and images. Audio and files are not supported."
            )


ROUTES = [complete]
