"""The wire schemas of chat completions. Unknown request fields are ignored, as OpenAI does."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from treadle.domain.runs import Metrics, Usage
from treadle.surfaces.http.openai.agent_limits import Effort, OutputFormat

# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class TextPart(Struct, frozen=True, tag="text"):
    text: str


class RefusalPart(Struct, frozen=True, tag="refusal"):
    refusal: str


class ImageUrl(Struct, frozen=True):
    url: str


class ImagePart(Struct, frozen=True, tag="image_url"):
    image_url: ImageUrl


class AudioPart(Struct, frozen=True, tag="input_audio"):
    """Not supported by agents."""


class FilePart(Struct, frozen=True, tag="file"):
    """Not supported by agents."""


ContentPart = TextPart | RefusalPart | ImagePart | AudioPart | FilePart


class ClientFunction(Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class ClientFreeform(Struct, frozen=True):
    name: str = ""
    input: str = ""


class ClientCall(Struct, frozen=True):
    """A call that a model made of one of the client's tools."""

    id: str = ""
    function: ClientFunction | None = None
    custom: ClientFreeform | None = None


class ChatMessage(Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[ClientCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(Struct, frozen=True):
    model: str
    messages: Annotated[tuple[ChatMessage, ...], Meta(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: Effort | None = None
    response_format: OutputFormat | None = None
    metadata: dict[str, Any] | None = None
    n: int | None = None
    tools: Any = None
    functions: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    stop: str | tuple[str, ...] | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    logprobs: Any = None
    top_logprobs: Any = None
    audio: Any = None
    modalities: Any = None
    prediction: Any = None
    web_search_options: Any = None
    service_tier: Any = None
    verbosity: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    store: Any = None


# ── Responses ────────────────────────────────────────────────────────────────────────────────────────


class PromptDetails(Struct, frozen=True):
    cached_tokens: int = 0


class ChatUsage(Struct, frozen=True):
    """The usage of all model calls of the run together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class CalledFunction(Struct, frozen=True):
    name: str
    arguments: str


class FunctionCall(Struct, frozen=True, tag="function"):
    id: str
    function: CalledFunction


class CalledFreeform(Struct, frozen=True):
    name: str
    input: str


class CustomCall(Struct, frozen=True, tag="custom"):
    id: str
    custom: CalledFreeform


AnswerCall = FunctionCall | CustomCall


class AnswerMessage(Struct, frozen=True):
    content: str | None
    tool_calls: tuple[AnswerCall, ...] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    refusal: None = None


FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]


class Choice(Struct, frozen=True):
    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class ChatCompletion(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: ChatUsage | None
    object: Literal["chat.completion"] = "chat.completion"


class FunctionDelta(Struct, frozen=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class FreeformDelta(Struct, frozen=True):
    name: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class CallChunk(Struct, frozen=True):
    """More of the call with this index. The first piece has its id and name."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET
    function: FunctionDelta | UnsetType = UNSET
    custom: FreeformDelta | UnsetType = UNSET


class Delta(Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: tuple[CallChunk, ...] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0


class ChatChunk(Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: ChatUsage | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


def make_chat_usage(metrics: Metrics | Usage) -> ChatUsage:
    sent, received = metrics.input_tokens, metrics.output_tokens
    return ChatUsage(sent, received, sent + received, PromptDetails(metrics.cache_read_tokens))
