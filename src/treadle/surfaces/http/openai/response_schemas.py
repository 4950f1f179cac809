"""The wire schemas of the responses API. Unknown request fields are ignored, as OpenAI does."""

import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from treadle.domain.errors import UnknownRun
from treadle.domain.ids import RunId
from treadle.domain.runs import Metrics, RunPart, Usage
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.openai.agent_limits import Effort, OutputFormat

# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class InputText(Struct, frozen=True, tag="input_text"):
    text: str


class EarlierText(Struct, frozen=True, tag="output_text"):
    text: str


class EarlierRefusal(Struct, frozen=True, tag="refusal"):
    refusal: str


class EarlierReasoning(Struct, frozen=True, tag="reasoning_text"):
    """Reasoning of another model, which is ignored."""


class InputImage(Struct, frozen=True, tag="input_image"):
    image_url: str | None = None


class InputFile(Struct, frozen=True, tag="input_file"):
    """Not supported by agents."""


class InputAudio(Struct, frozen=True, tag="input_audio"):
    """Not supported by agents."""


InputPart = InputText | EarlierText | EarlierRefusal | EarlierReasoning | InputImage | InputFile | InputAudio


class InputItem(Struct, frozen=True):
    """A message, or something that happened between messages."""

    type: str = "message"
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | tuple[InputPart, ...] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    action: Any = None
    output: Any = None


class TextConfig(Struct, frozen=True):
    format: OutputFormat | None = None


class ReasoningConfig(Struct, frozen=True):
    effort: Effort | None = None
    summary: str | None = None


class ConversationRef(Struct, frozen=True):
    """A session."""

    id: str


class ResponseRequest(Struct, frozen=True):
    model: str
    input: str | Annotated[tuple[InputItem, ...], Meta(max_length=10_000)]
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    metadata: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    top_p: float | None = None
    prompt: Any = None
    include: Any = None
    top_logprobs: Any = None
    service_tier: Any = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Any = None
    truncation: Any = None
    max_tool_calls: Any = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None


# ── Responses ────────────────────────────────────────────────────────────────────────────────────────


class ShownImage(Struct, frozen=True, tag="input_image"):
    image_url: str
    detail: Literal["auto"] = "auto"


class OutputText(Struct, frozen=True, tag="output_text"):
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputMessage(Struct, frozen=True, tag="message"):
    id: str
    content: tuple[OutputText, ...]
    status: ItemStatus
    role: Literal["assistant"] = "assistant"


class SummaryText(Struct, frozen=True, tag="summary_text"):
    text: str


class ReasoningItem(Struct, frozen=True, tag="reasoning"):
    id: str
    summary: tuple[SummaryText, ...]
    status: ItemStatus


class FunctionCallItem(Struct, frozen=True, tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class CustomCallItem(Struct, frozen=True, tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus


class ShellAction(Struct, frozen=True, tag="exec"):
    command: tuple[str, ...]
    env: dict[str, str] = {}
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class ShellCallItem(Struct, frozen=True, tag="local_shell_call"):
    id: str
    call_id: str
    action: ShellAction
    status: ItemStatus


OutputItem = OutputMessage | ReasoningItem | FunctionCallItem | CustomCallItem | ShellCallItem


class InputMessage(Struct, frozen=True, tag="message"):
    """A message of a request."""

    id: str
    role: Literal["user", "assistant"]
    content: tuple[InputText | OutputText | ShownImage, ...]
    status: Literal["completed"] = "completed"


class InputResult(Struct, frozen=True, tag="function_call_output"):
    """The result of a call."""

    id: str
    call_id: str
    output: str
    status: Literal["completed"] = "completed"


class InputItems(Struct, frozen=True):
    """The input of a response, as a page of a list."""

    data: tuple[InputMessage | InputResult, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class DeletedResponse(Struct, frozen=True):
    id: str
    deleted: bool = True
    object: Literal["response"] = "response"


class InputDetails(Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    """The usage of all model calls of the run together."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"] | None
    """None: OpenAI has no word for it; the answer explains it."""


class ResponseError(Struct, frozen=True):
    """Why there is no answer. OpenAI's codes are a closed list; `type` is our own kind."""

    code: Literal["rate_limit_exceeded", "server_error"]
    message: str
    type: str


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseObject(Struct, frozen=True):
    id: str
    created_at: int
    model: str
    conversation: ConversationRef
    """The session, which another request can continue with `conversation`."""
    status: ResponseStatus = "in_progress"
    output: tuple[OutputItem, ...] = ()
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    background: bool = False
    max_output_tokens: int | None = None
    max_tool_calls: None = None
    temperature: float = 1.0
    """1, the usual default, if neither the request nor the agent sets it. So are the following."""
    reasoning: ReasoningConfig = ReasoningConfig()
    text: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    tools: tuple[Any, ...] = ()
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: Literal[0] = 0
    service_tier: Literal["default"] = "default"
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    completed_at: int | None = None
    store: bool = True
    truncation: Literal["disabled"] = "disabled"
    object: Literal["response"] = "response"


class StreamEvent(Struct, frozen=True):
    """One event of a stream. Each type has some of the fields."""

    type: str
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    part: OutputText | SummaryText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: tuple[()] | UnsetType = UNSET


PREFIX = "resp_"
UNSTORED_PREFIX = "resp_unstored_"
_RESPONSE_ID = re.compile(r"resp_(run_[A-Za-z0-9-]+)(?:_([1-9]\d{0,9}))?")


def make_response_id(part: RunPart) -> str:
    """Return the id of the response that is a part of a run. The first part has the id of the run."""
    return f"{PREFIX}{part.run_id}_{part.after}" if part.after else f"{PREFIX}{part.run_id}"


def make_unstored_id(response_id: str) -> str:
    """Return the id of a response that cannot be retrieved."""
    return UNSTORED_PREFIX + response_id.removeprefix(PREFIX)


def parse_response_id(text: str) -> RunPart:
    """Return the part of a run that a response is. Raise UnknownRun for anything else."""
    if text.startswith(UNSTORED_PREFIX):
        raise UnknownRun(f"The response {text} was not stored: its request had `store: false`.")
    found = _RESPONSE_ID.fullmatch(text)
    if found is None:
        raise UnknownRun(f"There is no response {text}: ids of responses start with {PREFIX}")
    return RunPart(RunId(found[1]), int(found[2] or 0))


def make_response_usage(metrics: Metrics | Usage) -> ResponseUsage:
    sent, received = metrics.input_tokens, metrics.output_tokens
    read, written = metrics.cache_read_tokens, metrics.cache_write_tokens
    return ResponseUsage(sent, received, sent + received, InputDetails(read, written), OutputDetails())


def make_response_error(failure: Refusal) -> ResponseError:
    code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
    return ResponseError(code, str(failure), failure.kind)


def make_output_message(item_id: str, text: str, status: ItemStatus = "completed") -> OutputMessage:
    return OutputMessage(item_id, (OutputText(text),), status)
