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
from treadle.surfaces.http.dependencies import Asked, context_of
from treadle.surfaces.http.openai.agent_limits import Wishes, fitted
from treadle.surfaces.http.openai.chat_schemas import (
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
    Said,
    TextPart,
    chat_usage,
)
from treadle.surfaces.http.openai.conversation import Said as Spoken
from treadle.surfaces.http.openai.conversation import (
    Speaker,
    Turn,
    called,
    came_of,
    conversation,
    picture,
    words,
)
from treadle.surfaces.http.openai.deltas import Anew, Break, Over, Stands, Thought, Words
from treadle.surfaces.http.openai.errors import Failure, told
from treadle.surfaces.http.openai.refusals import Unsupported, Wrong
from treadle.surfaces.http.openai.route_docs import SPOKEN, said
from treadle.surfaces.http.openai.run_answer import (
    ON_DISCONNECT,
    SESSION,
    Going,
    Wanted,
    answered,
    begin,
    session_to_go_on_in,
    streamed,
)
from treadle.surfaces.http.streams import refuse_if_full

DONE = b"data: [DONE]\n\n"
BEGINS_ANEW = "\n\n[The model failed here, and another attempt answers anew.]\n\n"
_encode = msgspec.json.Encoder().encode


@post("/v1/chat/completions", status_code=200, **SPOKEN)
async def complete(data: JSONBody[ChatRequest], request: Asked) -> ASGIApp:
    """`model` is the name of an agent, which executes its own tools. The header `X-Treadle-Session`, or
    `metadata.treadle_session`, continues a session; only the latest message of the request is used then. A client
    that disconnects cancels the run, unless the header `X-Treadle-On-Disconnect` is `keep`. `store` has no effect:
    the journal keeps every run."""
    _refuse_unsupported(data)
    if data.stream:
        refuse_if_full(request)
    agent = fitted(context_of(request).visible_agent(data.model), _wishes(data))
    turns = [turn for index, message in enumerate(data.messages) for turn in _turns(message, index)]
    stays = request.headers.get(ON_DISCONNECT, "").lower() == "keep"
    wanted = Wanted(agent, conversation(turns, "messages"), await _session(data, request), stays)
    going = await begin(wanted, request)
    if data.stream:
        with_usage = data.stream_options is not None and bool(data.stream_options.include_usage)
        return await streamed(going, ChatWriter(going, data.model, with_usage), request)
    match await answered(going, request):
        case Over(end):
            text, finish, usage = end.text, _finish(end), chat_usage(end.metrics)
        case Stands(text):
            finish, usage = "stop", None
    choices = (Choice(Said(text), finish),)
    body = ChatCompletion(_id(going), going.created, data.model, choices, usage)
    return said(body, going.headers)


def _wishes(data: ChatRequest) -> Wishes:
    name = "max_tokens" if data.max_completion_tokens is None else "max_completion_tokens"
    most = data.max_tokens if data.max_completion_tokens is None else data.max_completion_tokens
    return Wishes(most, data.temperature, data.reasoning_effort, data.response_format, (name, "response_format"))


async def _session(data: ChatRequest, request: Asked) -> SessionId | None:
    named = request.headers.get(SESSION) or (data.metadata or {}).get("treadle_session")
    if named is None:
        return None
    if not isinstance(named, str):
        raise Wrong("metadata", "`metadata.treadle_session` must be the id of a session: ses_…")
    return await session_to_go_on_in(named, request)


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


def _turns(message: ChatMessage, index: int) -> Iterable[Turn]:
    where = f"messages[{index}].content"
    match message.content:
        case None:
            parts: tuple[Spoken, ...] = ()
        case str(text):
            parts = words(text)
        case several:
            parts = tuple([_part(part, f"{where}[{place}]") for place, part in enumerate(several)])
    if message.role in ("tool", "function"):
        call = message.tool_call_id or message.name or ""
        yield Turn("user", (came_of(call, Turn("user", parts).text),))
        return
    calls = tuple([called(call.function.name, call.function.arguments) for call in message.tool_calls or ()])
    speaker: Speaker = "instructions" if message.role in ("system", "developer") else message.role  # pyright: ignore[reportAssignmentType] -- tool and function are done with above
    yield Turn(speaker, (*parts, *calls))


def _part(part: ContentPart, where: str) -> Spoken:
    match part:
        case TextPart(text) | RefusalPart(text):
            return words(text)[0]
        case ImagePart(image):
            return picture(image.url, where)
        case _:
            raise Wrong(where, "A message has text and pictures; audio and files are not taken.")


# ── The answer ─────────────────────────────────────────────────────────────────────────────────────


def _id(going: Going) -> str:
    return f"chatcmpl-{going.run_id}"


def _finish(end: RunEnd) -> FinishReason:
    return "length" if end.outcome == "truncated" else "stop"


class ChatWriter:
    """Implements `answering.Writer`."""

    def __init__(self, going: Going, model: str, with_usage: bool) -> None:
        self._going = going
        self._model = model
        self._with_usage = with_usage
        self._has_spoken = False
        self._gap = ""
        """What stands before the next words."""

    def opening(self) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta("assistant", ""))))

    def piece(self, piece: Words | Thought | Break | Anew) -> bytes:
        match piece:
            case Words(text):
                self._has_spoken, gap, self._gap = True, self._gap, ""
                return self._said(gap + text)
            case Break():
                self._gap = "\n\n"
                return b""
            case Anew():
                return self._said(BEGINS_ANEW)
            case Thought():
                return b""  # the format has no place for it

    def standing(self, text: str) -> bytes:
        gap = "\n\n" if self._has_spoken else ""
        return self._said(gap + text) + self._end("stop") + DONE

    def over(self, end: RunEnd) -> bytes:
        usage = b""
        if self._with_usage:
            chunk = ChatChunk(_id(self._going), self._going.created, self._model, (), usage=chat_usage(end.metrics))
            usage = self._event(chunk)
        return self._end(_finish(end)) + usage + DONE

    def failed(self, failure: Refusal, end: RunEnd | None) -> bytes:
        return self._event(Failure(told(failure.status, failure.kind, str(failure)))) + DONE

    def _said(self, text: str) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(content=text))))

    def _end(self, finish: FinishReason) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta(), finish)))

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        return ChatChunk(_id(self._going), self._going.created, self._model, (choice,))

    def _event(self, value: ChatChunk | Failure) -> bytes:
        return b"data: %b\n\n" % _encode(value)


ROUTES = [complete]
