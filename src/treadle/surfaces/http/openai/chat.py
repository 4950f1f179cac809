"""`POST /v1/chat/completions`: an agent answers as a model would. The whole conversation comes with every request,
and begins a session of its own, unless the request names one to go on in."""

from collections.abc import Iterable

import msgspec
from litestar import post
from litestar.params import JSONBody
from litestar.types import ASGIApp

from treadle.domain.events import RunEnd
from treadle.domain.ids import SessionId
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.dependencies import ApiRequest, context_of
from treadle.surfaces.http.openai.agent_limits import RequestedSettings, apply_settings
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
from treadle.surfaces.http.openai.deltas import AnswerText, Ended, ReasoningText, Restart, StepBreak, Waiting
from treadle.surfaces.http.openai.errors import ErrorBody, make_error_detail
from treadle.surfaces.http.openai.refusals import InvalidParameterValue, Unsupported
from treadle.surfaces.http.openai.route_docs import ROUTE_OPTIONS, make_json_response
from treadle.surfaces.http.openai.run_answer import (
    ON_DISCONNECT_HEADER,
    SESSION_HEADER,
    RunAnswer,
    RunRequest,
    find_open_session,
    start_run,
    stream_answer,
    wait_for_answer,
)
from treadle.surfaces.http.streams import refuse_if_full

DONE = b"data: [DONE]\n\n"
RESTART_NOTE = "\n\n[The model failed here, and another attempt answers anew.]\n\n"
_encode = msgspec.json.Encoder().encode


@post("/v1/chat/completions", status_code=200, **ROUTE_OPTIONS)
async def complete(data: JSONBody[ChatRequest], request: ApiRequest) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools. The header `X-Treadle-Session`, or
    `metadata.treadle_session`, continues a session; only the latest message of the request is used then. A client
    that disconnects cancels the run, unless the header `X-Treadle-On-Disconnect` is `keep`. `store` has no effect:
    the journal keeps every run."""
    _refuse_unsupported(data)
    if data.stream:
        refuse_if_full(request)
    agent = apply_settings(context_of(request).visible_agent(data.model), _read_settings(data))
    turns = [turn for index, message in enumerate(data.messages) for turn in _read_turns(message, index)]
    stays = request.headers.get(ON_DISCONNECT_HEADER, "").lower() == "keep"
    wanted = RunRequest(agent, build_conversation(turns, "messages"), await _find_session(data, request), stays)
    going = await start_run(wanted, request)
    if data.stream:
        with_usage = data.stream_options is not None and bool(data.stream_options.include_usage)
        return await stream_answer(going, ChatWriter(going, data.model, with_usage), request)
    match await wait_for_answer(going, request):
        case Ended(end):
            text, finish, usage = end.text, _finish_reason(end), make_chat_usage(end.metrics)
        case Waiting(text):
            finish, usage = "stop", None
    choices = (Choice(AnswerMessage(text), finish),)
    body = ChatCompletion(_completion_id(going), going.created, data.model, choices, usage)
    return make_json_response(body, going.headers)


def _read_settings(data: ChatRequest) -> RequestedSettings:
    name = "max_tokens" if data.max_completion_tokens is None else "max_completion_tokens"
    most = data.max_tokens if data.max_completion_tokens is None else data.max_completion_tokens
    return RequestedSettings(
        most, data.temperature, data.reasoning_effort, data.response_format, (name, "response_format")
    )


async def _find_session(data: ChatRequest, request: ApiRequest) -> SessionId | None:
    named = request.headers.get(SESSION_HEADER) or (data.metadata or {}).get("treadle_session")
    if named is None:
        return None
    if not isinstance(named, str):
        raise InvalidParameterValue("metadata", "`metadata.treadle_session` must be the id of a session: ses_…")
    return await find_open_session(named, request)


def _refuse_unsupported(data: ChatRequest) -> None:
    own_tools = "it has tools of its own, and calls them itself; leave yours out."
    one_answer = "it gives one answer."
    unseen = "what its models weigh is not shown."
    its_own = "its own settings say how it samples."
    refused = (
        ("tools", bool(data.tools), own_tools),
        ("functions", bool(data.functions), own_tools),
        ("n", data.n not in (None, 1), one_answer),
        ("logprobs", bool(data.logprobs), unseen),
        ("top_logprobs", bool(data.top_logprobs), unseen),
        ("logit_bias", bool(data.logit_bias), its_own),
        ("top_p", data.top_p not in (None, 1), its_own),
        ("frequency_penalty", bool(data.frequency_penalty), its_own),
        ("presence_penalty", bool(data.presence_penalty), its_own),
        ("stop", bool(data.stop), "its answer ends where it has done its work."),
        ("audio", bool(data.audio), "it answers in writing."),
        ("modalities", data.modalities not in (None, ["text"]), "it answers in writing."),
        ("prediction", bool(data.prediction), "it works its answer out."),
        ("web_search_options", data.web_search_options is not None, own_tools),
        ("tool_choice", data.tool_choice not in (None, "none", "auto"), own_tools),
    )
    for name, is_asked, why in refused:
        if is_asked:
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
    speaker: Speaker = "instructions" if message.role in ("system", "developer") else message.role  # pyright: ignore[reportAssignmentType] -- tool and function are done with above
    yield Turn(speaker, (*parts, *calls))


def _read_part(part: ContentPart, where: str) -> Spoken:
    match part:
        case TextPart(text) | RefusalPart(text):
            return make_text_parts(text)[0]
        case ImagePart(image):
            return read_image(image.url, where)
        case _:
            raise InvalidParameterValue(where, "A message has text and pictures; audio and files are not taken.")


# ── The answer ─────────────────────────────────────────────────────────────────────────────────────


def _completion_id(going: RunAnswer) -> str:
    return f"chatcmpl-{going.run_id}"


def _finish_reason(end: RunEnd) -> FinishReason:
    return "length" if end.outcome == "truncated" else "stop"


class ChatWriter:
    """Implements `answering.Writer`."""

    def __init__(self, going: RunAnswer, model: str, with_usage: bool) -> None:
        self._going = going
        self._model = model
        self._with_usage = with_usage
        self._has_spoken = False
        self._gap = ""
        """What stands before the next words."""

    def opening(self) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta("assistant", ""))))

    def piece(self, piece: AnswerText | ReasoningText | StepBreak | Restart) -> bytes:
        match piece:
            case AnswerText(text):
                self._has_spoken, gap, self._gap = True, self._gap, ""
                return self._said(gap + text)
            case StepBreak():
                self._gap = "\n\n"
                return b""
            case Restart():
                return self._said(RESTART_NOTE)
            case ReasoningText():
                return b""  # the format has no place for it

    def standing(self, text: str) -> bytes:
        gap = "\n\n" if self._has_spoken else ""
        return self._said(gap + text) + self._end("stop") + DONE

    def over(self, end: RunEnd) -> bytes:
        usage = b""
        if self._with_usage:
            chunk = ChatChunk(
                _completion_id(self._going),
                self._going.created,
                self._model,
                (),
                usage=make_chat_usage(end.metrics),
            )
            usage = self._event(chunk)
        return self._end(_finish_reason(end)) + usage + DONE

    def failed(self, failure: Refusal, end: RunEnd | None) -> bytes:
        return self._event(ErrorBody(make_error_detail(failure.status, failure.kind, str(failure)))) + DONE

    def _said(self, text: str) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(content=text))))

    def _end(self, finish: FinishReason) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(), finish)))

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        return ChatChunk(_completion_id(self._going), self._going.created, self._model, (choice,))

    def _event(self, value: ChatChunk | ErrorBody) -> bytes:
        return b"data: %b\n\n" % _encode(value)


ROUTES = [complete]
