"""The `anthropic_messages` wire format. Streaming only.

Each message is encoded once for each model that it is sent to. Cache marks are in two fixed places: after the
instructions, and, through an option at the end of the request, after the last turn. Each request of a run
therefore starts with the bytes of the previous one. After a turn with very many blocks, the next request carries
one more mark; the model does not see marks."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse
from treadle.models.formats.anthropic_reply import AnthropicReply
from treadle.models.formats.output_schema import encode_anthropic_format
from treadle.models.formats.reasoning_return import REASONING_PLACEHOLDER, ReasoningReturn
from treadle.models.formats.tagged_reply import TaggedReply
from treadle.models.http.client import WireFormat
from treadle.models.http.wire import as_arguments, encode, sanitize_id
from treadle.ports.model import ModelRequest, Preamble

WIRE_FORMAT = "anthropic_messages"
VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 8192
"""Used if neither the agent nor the catalog sets a limit: this format requires one."""
_DEFAULT_MAX_TOKENS_WITH_REASONING = 32_768
_THINKING_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24_576, "xhigh": 32_768}
_MIN_THINKING_BUDGET = 1024
_CACHE_LOOKBACK_BLOCKS = 18
"""How many blocks before a mark the cache searches for a cached prefix, minus one or two for safety."""
_CACHE_MARK = {"type": "ephemeral"}
_ENCODED_CACHE_MARK = b',"cache_control":%b' % encode(_CACHE_MARK)
_REASONING_TYPES = ("thinking", "redacted_thinking")
_MISSING_REASONING = {"type": "thinking", "thinking": REASONING_PLACEHOLDER, "signature": ""}
_EMPTY_ERROR = "It failed and did not say why."


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of a request. Cached bytes are reused where the request has them."""
    messages = _MessageEncoder(request)
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encode_as(WIRE_FORMAT, _encode_preamble))
    first = len(pieces)
    pieces += request.conversation.encode_as(f"{WIRE_FORMAT}:{messages.key}", messages.encode)
    if (place := _find_extra_mark(request.conversation.messages)) is not None:
        pieces[first + place] = _add_cache_mark(pieces[first + place])
    _drop_first_comma(pieces, first)
    pieces += (b"],", encode(_build_options(request))[1:-1], b"}")
    return b"".join(pieces)  # the only copy of the conversation


def _encode_preamble(preamble: Preamble) -> bytes:
    """Encode everything before the first turn: constant options, tools, instructions, and the mark after them."""
    head = b'"stream":true,'
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in preamble.tools
    ]
    if tools:
        if not preamble.system:
            tools[-1]["cache_control"] = _CACHE_MARK
        head += b'"tools":%b,' % encode(tools)
    if preamble.system:
        head += b'"system":%b,' % encode([{"type": "text", "text": preamble.system, "cache_control": _CACHE_MARK}])
    return head + b'"messages":['


def _drop_first_comma(pieces: list[bytes], first: int) -> None:
    """Remove the leading comma of the first turn that is not empty."""
    for place in range(first, len(pieces)):
        if pieces[place]:
            pieces[place] = pieces[place][1:]
            return


# ── Options ────────────────────────────────────────────────────────────────────────────────────────


def _build_options(request: ModelRequest) -> dict[str, Any]:
    """Return the options that may differ between the requests of a run, and the mark after the last turn."""
    settings, longest = request.settings, request.settings.max_tokens or request.profile.max_output
    options: dict[str, Any] = {"cache_control": _CACHE_MARK}
    if settings.reasoning is not None:
        longest = longest or _DEFAULT_MAX_TOKENS_WITH_REASONING
        if request.profile.thinking == "adaptive":
            options["output_config"] = {"effort": request.profile.fit_effort(settings.reasoning)}
        if thinking := _thinking_option(request, min(_THINKING_BUDGETS[settings.reasoning], longest // 2)):
            options["thinking"] = thinking
    if request.constrained and (format_ := encode_anthropic_format(request.preamble)):
        options["output_config"] = {**options.get("output_config", {}), "format": msgspec.Raw(format_)}
    if settings.temperature is not None and "thinking" not in options:  # the API accepts only one of the two
        options["temperature"] = settings.temperature
    if settings.top_p is not None:
        options["top_p"] = settings.top_p
    if texts := [text for text in settings.stop if not text.isspace()]:  # the API refuses blank ones
        options["stop_sequences"] = texts
    if request.preamble.tools and (choice := _tool_choice_option(request)):
        options["tool_choice"] = choice
    return {"max_tokens": longest or DEFAULT_MAX_TOKENS, **options}


def _tool_choice_option(request: ModelRequest) -> dict[str, Any] | None:
    """Return the option, or None for the default. The tools are sent even if none may be called: without them the
    prefix would change."""
    if request.tool_choice == "none":
        return {"type": "none"}
    choice: dict[str, Any] = {"type": "auto"}
    if request.tool_choice == "required":
        choice = {"type": "tool", "name": request.named_tool} if request.named_tool else {"type": "any"}
    if request.settings.parallel_tool_calls is False:
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _thinking_option(request: ModelRequest, budget: int) -> dict[str, Any] | None:
    """Return the option that requests thinking, or None if it cannot be requested.

    With a budget it cannot be requested in the middle of a turn that began without thinking or with another model.
    A turn continues while tool calls are answered."""
    if request.plain or (request.tool_choice == "required" and request.preamble.tools):
        return None  # the API refuses to think before a call that must be made
    if request.profile.thinking == "adaptive":
        return {"type": "adaptive", "display": "summarized"}  # otherwise some models do not return it
    if (first := _find_turn_start(request.conversation.messages)) is not None:
        opening = next(iter(first.parts), None)
        if not (isinstance(opening, Thinking) and _is_sent(opening, request)) and not request.filled:
            return None
    return {"type": "enabled", "budget_tokens": budget} if budget >= _MIN_THINKING_BUDGET else None


def _is_sent(opening: Thinking, request: ModelRequest) -> bool:
    """Return whether the reasoning at the start of a turn with calls is sent back."""
    provider, model = request.provider, request.model
    sends_blocks = request.profile.reasoning_back != "never"
    return opening.belongs_to(provider, model) or (sends_blocks and opening.is_block_from(provider, model))


def _find_turn_start(messages: Sequence[Message]) -> Message | None:
    """Return the assistant's first message of the turn that the next reply continues, or None if the reply starts
    a turn. User text sent together with tool results does not end a turn."""
    first: Message | None = None
    for place in range(len(messages) - 1, -1, -1):
        role = messages[place].role
        if role == "assistant":
            first = messages[place]
        elif role == "user" and (place == 0 or messages[place - 1].role != "tool"):
            break
    return first


# ── Cache marks ────────────────────────────────────────────────────────────────────────────────────


def _find_extra_mark(messages: Sequence[Message]) -> int | None:
    """Return where the previous request ended, if it is too far back for the mark after the last turn, else None.
    Without a mark there, the cache would find nothing of the conversation."""
    blocks = 0
    for place in range(len(messages) - 1, 0, -1):
        blocks += len(messages[place].parts)
        if messages[place].role == "assistant":
            is_far = blocks > _CACHE_LOOKBACK_BLOCKS and messages[place - 1].role != "assistant"
            return place - 1 if is_far else None
    return None


def _add_cache_mark(turn: bytes) -> bytes:
    """Return a turn with a mark in its last block."""
    return turn[:-3] + _ENCODED_CACHE_MARK + turn[-3:] if turn else turn


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────


class _MessageEncoder:
    """Encodes the messages of one request, in order. Reasoning is sent back only to its own model. Without a
    signature, it is sent back as the profile says."""

    def __init__(self, request: ModelRequest) -> None:
        self._reasoning = ReasoningReturn(request)
        self.key = self._reasoning.key

    def encode(self, message: Message) -> bytes:
        rule = self._reasoning
        returns, blocks = rule.applies_to(message), list[dict[str, Any]]()
        for part in message.sent:
            if isinstance(part, Thinking):
                block = _make_reasoning(part, rule.provider, rule.model, returns=returns)
            else:
                block = _make_block(part)
            if block is not None:
                blocks.append(block)
        while blocks and blocks[-1]["type"] in _REASONING_TYPES:
            blocks.pop()  # the API refuses reasoning that nothing follows
        if not blocks:
            return b""
        if rule.is_filled and message.role == "assistant" and blocks[0]["type"] not in _REASONING_TYPES:
            blocks.insert(0, _MISSING_REASONING)
        role = b"assistant" if message.role == "assistant" else b"user"
        return b',{"role":"%b","content":[%b]}' % (role, b",".join(map(encode, blocks)))


def _make_reasoning(part: Thinking, provider: str, model: str, *, returns: bool) -> dict[str, Any] | None:
    """Return the block of a thought, or None if it is not sent to this model."""
    if part.belongs_to(provider, model):
        if part.signature:
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        return {"type": "redacted_thinking", "data": part.sealed}
    if not (returns and part.text and part.is_block_from(provider, model)):
        return None
    block = {"type": "thinking", "thinking": part.text}
    return block if part.signature is None else block | {"signature": part.signature}


def _make_block(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if _is_not_blank(text) else None
        case ToolUse(call_id, name, arguments):
            # Models call tools that do not exist, with names that are not allowed.
            fields = {"id": sanitize_id(call_id), "name": sanitize_id(name), "input": as_arguments(arguments)}
            return {"type": "tool_use", **fields}
        case ToolResult(call_id, content, is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": sanitize_id(call_id)}
            if is_error:  # the only kind of result that must not be empty
                return result | {"content": content if _is_not_blank(content) else _EMPTY_ERROR, "is_error": True}
            if part.images:
                return result | {"content": _make_blocks((Text(content), *part.images))}
            return result | {"content": content} if _is_not_blank(content) else result
        case Thinking():
            return None
        case Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _make_blocks(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [block for part in parts if (block := _make_block(part)) is not None]


def _is_not_blank(text: str) -> bool:
    return bool(text) and not text.isspace()


def _key_headers(key: str) -> dict[str, str]:
    return {"x-api-key": key}


def _start_reply(request: ModelRequest) -> TaggedReply:
    return TaggedReply(AnthropicReply(request), request)


FORMAT = WireFormat(
    name=WIRE_FORMAT,
    path="/messages",
    encode=encode_request,
    reply=_start_reply,
    headers={"anthropic-version": VERSION},
    credentials=_key_headers,
)
