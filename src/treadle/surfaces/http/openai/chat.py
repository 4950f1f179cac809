"""`POST /v1/chat/completions`: an agent answers like a model. Every request contains the whole conversation and
starts a session of its own, unless it names a session to continue."""

from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp

from treadle.domain.events import RunEnd
from treadle.domain.ids import SessionId
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, act_for_user, get_context
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, Sampling, apply_settings
from treadle.surfaces.http.openai.chat_schemas import (
    AnswerMessage,
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    Choice,
    ChunkChoice,
    ContentPart,
    Delta,
    FinishReason,
    ImagePart,
    RefusalPart,
    TextPart,
    make_chat_usage,
)
from treadle.surfaces.http.openai.conversation import (
    Speaker,
    Turn,
    build_conversation,
    describe_client_call,
    describe_client_result,
    make_text_parts,
    read_image,
)
from treadle.surfaces.http.openai.conversation import TurnPart as Spoken
from treadle.surfaces.http.openai.deltas import (
    AnswerText,
    DeltaTracker,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
    Waiting,
)
from treadle.surfaces.http.openai.errors import ErrorBody, make_error_detail
from treadle.surfaces.http.openai.images import fetch_images
from treadle.surfaces.http.openai.operations import COMPLETE, Complete
from treadle.surfaces.http.openai.parameters import list_given, list_unsent, read_metadata
from treadle.surfaces.http.openai.refusals import InvalidParameterValue, Unsupported
from treadle.surfaces.http.openai.run_answer import (
    SESSION_HEADER,
    RunAnswer,
    RunRequest,
    find_open_session,
    outlives_client,
    start_run,
    stream_answer,
    wait_for_answer,
)
from treadle.surfaces.http.routing import make_json_response, serve
from treadle.surfaces.http.streams import refuse_if_full

DONE = b"data: [DONE]\n\n"
WITHOUT_EFFECT = (
    "logprobs", "top_logprobs", "audio", "modalities", "prediction", "web_search_options", "service_tier",
    "verbosity", "prompt_cache_key", "prompt_cache_retention", "store",
)  # fmt: skip
"""Parameters that are accepted and change nothing."""
RESTART_NOTE = "\n\n[The model failed here. Another attempt starts the answer again.]\n\n"
_encode = msgspec.json.Encoder().encode


@serve(COMPLETE)
async def complete(wanted: Complete, request: ApiRequest) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools. The header `X-Treadle-Session`, or
    `metadata.treadle_session`, continues a session; only the latest message of the request is used then. A client
    that disconnects cancels the run, unless the header `X-Treadle-On-Disconnect` is `keep`. `store` has no effect:
    the journal keeps every run. `user` names the
    person whom the run is for."""
    data = wanted.request
    _refuse_unsupported(data)
    act_for_user(request, data.user or data.safety_identifier)
    if data.stream:
        refuse_if_full(request)
    agent = apply_settings(get_context(request).visible_agent(data.model), _read_settings(data))
    turns = [turn for index, message in enumerate(data.messages) for turn in _read_turns(message, index)]
    session_id = await _find_session(data, request)
    turns = await fetch_images(turns, agent.limits.max_attachment_bytes, request, continues=session_id is not None)
    keeps_running = outlives_client(request)
    run_request = RunRequest(
        agent=agent,
        conversation=build_conversation(turns, "messages"),
        session_id=session_id,
        metadata=read_metadata(data.metadata),
        keeps_running=keeps_running,
        ignored=(*list_given(data, WITHOUT_EFFECT), *list_unsent(agent, data, request)),
    )
    answer = await start_run(run_request, request)
    tracker = DeltaTracker(agent)
    if data.stream:
        with_usage = data.stream_options is not None and bool(data.stream_options.include_usage)
        return await stream_answer(answer, tracker, ChatWriter(answer, data.model, with_usage), request)
    match (await wait_for_answer(answer, tracker, request))[-1]:
        case Ended(end):
            text, finish, usage = end.text, _finish_reason(end), make_chat_usage(end.metrics)
        case last:
            text, finish, usage = last.text if isinstance(last, Waiting) else "", "stop", None
    choices = (Choice(AnswerMessage(text), finish),)
    body = ChatCompletion(_completion_id(answer), answer.created, data.model, choices, usage)
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
    return RequestedSettings(sampling, most, data.reasoning_effort, data.response_format, (name, "response_format"))


async def _find_session(data: ChatRequest, request: ApiRequest) -> SessionId | None:
    named = request.headers.get(SESSION_HEADER) or (data.metadata or {}).get("treadle_session")
    if named is None:
        return None
    if not isinstance(named, str):
        raise InvalidParameterValue("metadata", "`metadata.treadle_session` must be the id of a session: ses_…")
    return await find_open_session(named, request)


def _refuse_unsupported(data: ChatRequest) -> None:
    own_tools = "it calls its own tools. Leave the client's tools out."
    refused = (
        ("tools", bool(data.tools), own_tools),
        ("functions", bool(data.functions), own_tools),
        ("tool_choice", data.tool_choice not in (None, "none", "auto"), own_tools),
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
        call = message.tool_call_id or message.name or ""
        yield Turn("user", (describe_client_result(call, Turn("user", parts).text),))
        return
    calls = tuple(
        [describe_client_call(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    )
    speaker: Speaker = "instructions" if message.role in ("system", "developer") else message.role  # pyright: ignore[reportAssignmentType] -- tool and function are handled above
    yield Turn(speaker, (*parts, *calls))


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


# ── The answer ─────────────────────────────────────────────────────────────────────────────────────


def _completion_id(answer: RunAnswer) -> str:
    return f"chatcmpl-{answer.run_id}"


def _finish_reason(end: RunEnd) -> FinishReason:
    match end.outcome:
        case "truncated":
            return "length"
        case "refused":
            return "content_filter"
        case _:
            return "stop"


class ChatWriter:
    """Implements `run_answer.AnswerWriter`."""

    def __init__(self, answer: RunAnswer, model: str, with_usage: bool) -> None:
        self._answer = answer
        self._model = model
        self._with_usage = with_usage
        self._has_spoken = False
        self._gap = ""
        """The separator before the next text."""

    def write_opening(self) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta("assistant", ""))))

    def write_piece(self, write_piece: AnswerText | ReasoningText | StepBreak | Restart) -> bytes:
        match write_piece:
            case AnswerText(text):
                self._has_spoken, gap, self._gap = True, self._gap, ""
                return self._write_text(gap + text)
            case StepBreak():
                self._gap = "\n\n"
                return b""
            case Restart():
                return self._write_text(RESTART_NOTE)
            case ReasoningText():
                return b""  # the format has no field for reasoning

    def write_waiting(self, text: str) -> bytes:
        gap = "\n\n" if self._has_spoken else ""
        return self._write_text(gap + text) + self._write_finish("stop") + DONE

    def write_end(self, end: RunEnd) -> bytes:
        usage = b""
        if self._with_usage:
            chunk = ChatChunk(
                _completion_id(self._answer),
                self._answer.created,
                self._model,
                (),
                usage=make_chat_usage(end.metrics),
            )
            usage = self._event(chunk)
        return self._write_finish(_finish_reason(end)) + usage + DONE

    def write_failure(self, failure: Refusal, end: RunEnd | None) -> bytes:
        return self._event(ErrorBody(make_error_detail(failure.status, failure.kind, str(failure)))) + DONE

    def _write_text(self, text: str) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(content=text))))

    def _write_finish(self, finish: FinishReason) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(), finish)))

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        return ChatChunk(_completion_id(self._answer), self._answer.created, self._model, (choice,))

    def _event(self, value: ChatChunk | ErrorBody) -> bytes:
        return b"data: %b\n\n" % _encode(value)


ROUTES = [complete]
