"""Writes the answer of an agent as a chat completion: whole, or as a stream of chunks."""

from collections.abc import Sequence

import msgspec

from treadle.domain.client_tools import ClientTool
from treadle.domain.events import RunEnd
from treadle.domain.runs import Metrics, Usage
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.openai.call_ids import CallPlace, make_call_id
from treadle.surfaces.http.openai.chat_schemas import (
    AnswerCall,
    AnswerMessage,
    CallChunk,
    CalledFreeform,
    CalledFunction,
    ChatChunk,
    ChatCompletion,
    ChatUsage,
    Choice,
    ChunkChoice,
    CustomCall,
    Delta,
    FinishReason,
    FreeformDelta,
    FunctionCall,
    FunctionDelta,
    make_chat_usage,
)
from treadle.surfaces.http.openai.deltas import (
    AnswerPiece,
    AnswerText,
    CallAsked,
    Called,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
    Waiting,
)
from treadle.surfaces.http.openai.errors import ErrorBody, make_error_detail
from treadle.surfaces.http.openai.offered_tools import find_kind
from treadle.surfaces.http.openai.response_stream import read_freeform
from treadle.surfaces.http.openai.run_answer import RunAnswer

DONE = b"data: [DONE]\n\n"
RESTART_NOTE = "\n\n[The model failed here. Another attempt starts the answer again.]\n\n"
_encode = msgspec.json.Encoder().encode


def _completion_id(answer: RunAnswer) -> str:
    return f"chatcmpl-{answer.run_id}-{answer.after}" if answer.after else f"chatcmpl-{answer.run_id}"


def _finish_reason(end: RunEnd) -> FinishReason:
    match end.outcome:
        case "truncated":
            return "length"
        case "refused":
            return "content_filter"
        case _:
            return "stop"


def make_completion(
    answer: RunAnswer, model: str, pieces: Sequence[AnswerPiece], tools: Sequence[ClientTool]
) -> ChatCompletion:
    """Return the answer in one piece. The text before calls is that of the model call that made them."""
    usage: ChatUsage | None = None
    calls = [piece for piece in pieces if isinstance(piece, CallAsked)]
    match pieces[-1]:
        case Called(used):
            text, finish, usage = _join_latest(pieces), "tool_calls", make_chat_usage(used)
        case Ended(end) as ended:
            text, finish, usage = end.text, _finish_reason(end), make_chat_usage(ended.usage or end.metrics)
            calls = []
        case last:
            text, finish, calls = last.text if isinstance(last, Waiting) else "", "stop", []
    made = tuple([_make_call(call, answer, tools) for call in calls])
    message = AnswerMessage(text or None, made) if made else AnswerMessage(text)
    choices = (Choice(message, finish),)
    return ChatCompletion(_completion_id(answer), answer.created, model, choices, usage)


def _join_latest(pieces: Sequence[AnswerPiece]) -> str:
    """Return the text since the last break."""
    texts: list[str] = []
    for piece in pieces:
        match piece:
            case StepBreak() | Restart():
                texts.clear()
            case AnswerText(text):
                texts.append(text)
            case _:
                pass
    return "".join(texts)


def _make_call(call: CallAsked, answer: RunAnswer, tools: Sequence[ClientTool]) -> AnswerCall:
    call_id = make_call_id(CallPlace(answer.run_id, call.sequence))
    if _is_freeform(call, tools):
        return CustomCall(call_id, CalledFreeform(call.name, read_freeform(call.arguments)))
    return FunctionCall(call_id, CalledFunction(call.name, call.arguments or "{}"))


def _is_freeform(call: CallAsked, tools: Sequence[ClientTool]) -> bool:
    return any(tool.name == call.name and find_kind(tool) == "custom" for tool in tools)


class ChatWriter:
    """Implements `run_answer.AnswerWriter`."""

    def __init__(self, answer: RunAnswer, model: str, with_usage: bool, tools: Sequence[ClientTool] = ()) -> None:
        self._answer = answer
        self._model = model
        self._with_usage = with_usage
        self._tools = tools
        self._calls = 0
        self._has_spoken = False
        self._gap = ""
        """The separator before the next text."""

    def write_opening(self) -> bytes:
        return self._event(self._chunk(ChunkChoice(Delta("assistant", ""))))

    def write_piece(self, write_piece: AnswerText | ReasoningText | StepBreak | Restart | CallAsked) -> bytes:
        match write_piece:
            case CallAsked() as call:
                return self._write_call(call)
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

    def write_calls(self, called: Called) -> bytes:
        return self._write_finish("tool_calls") + self._write_usage(called.usage) + DONE

    def write_end(self, ended: Ended) -> bytes:
        used = ended.usage or ended.end.metrics
        return self._write_finish(_finish_reason(ended.end)) + self._write_usage(used) + DONE

    def _write_usage(self, usage: Usage | Metrics) -> bytes:
        if not self._with_usage:
            return b""
        name, created = _completion_id(self._answer), self._answer.created
        return self._event(ChatChunk(name, created, self._model, (), usage=make_chat_usage(usage)))

    def _write_call(self, call: CallAsked) -> bytes:
        """Write a call: first its id and name, then its arguments."""
        index, made = self._calls, _make_call(call, self._answer, self._tools)
        self._calls += 1
        match made:
            case FunctionCall(call_id, function):
                first = CallChunk(index, call_id, "function", function=FunctionDelta(function.name, ""))
                rest = CallChunk(index, function=FunctionDelta(arguments=function.arguments))
            case CustomCall(call_id, custom):
                first = CallChunk(index, call_id, "custom", custom=FreeformDelta(custom.name, ""))
                rest = CallChunk(index, custom=FreeformDelta(input=custom.input))
        deltas = [Delta(tool_calls=(first,)), Delta(tool_calls=(rest,))]
        return b"".join([self._event(self._chunk(ChunkChoice(delta))) for delta in deltas])

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
