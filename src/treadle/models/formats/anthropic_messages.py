"""The `anthropic_messages` wire format. Streaming only.

Each message is encoded once ever for each model that it is sent to. The cache marks stand in two places that never
move: behind the instructions, and, by a word at the end of the request, behind the last turn. So each request of a
run begins with the bytes of the one before. A turn of very many blocks is followed by a request with one more mark;
marks are no part of what the model reads."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse
from treadle.models.formats.anthropic_reply import AnthropicReply
from treadle.models.http.client import WireFormat
from treadle.models.http.wire import as_arguments, encode, sanitize_id
from treadle.ports.model import ModelRequest, Preamble

WIRE_FORMAT = "anthropic_messages"
VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 8192
"""Tokens, where neither the agent nor the catalog says: this format must be told a limit."""
_DEFAULT_MAX_TOKENS_WITH_REASONING = 32_768
_THINKING_BUDGETS = {"low": 2048, "medium": 8192, "high": 24_576}
_MIN_THINKING_BUDGET = 1024
_CACHE_LOOKBACK_BLOCKS = 18
"""Blocks before a mark among which what the cache keeps is found, with one or two to spare."""
_CACHE_MARK = {"type": "ephemeral"}
_ENCODED_CACHE_MARK = b',"cache_control":%b' % encode(_CACHE_MARK)
_REASONING_TYPES = ("thinking", "redacted_thinking")
_EMPTY_ERROR = "It failed and did not say why."


def encode_request(request: ModelRequest) -> bytes:
    """The body of a request, from bytes that are kept wherever the request has them."""
    target = "" if request.plain else f"{request.provider}/{request.model}"
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encoded_as(WIRE_FORMAT, _encode_preamble))
    first = len(pieces)
    pieces += request.conversation.encoded_as(f"{WIRE_FORMAT}:{target}", _make_encoder(target))
    if (place := _find_extra_mark(request.conversation.messages)) is not None:
        pieces[first + place] = _add_cache_mark(pieces[first + place])
    if request.aside:  # which is gone the next time: the mark belongs behind the last turn, and not behind it
        pieces[-1] = _add_cache_mark(pieces[-1])
        pieces.append(b',{"role":"user","content":[%b]}' % encode({"type": "text", "text": request.aside}))
    _drop_first_comma(pieces, first)
    pieces += (b"],", encode(_build_options(request))[1:-1], b"}")
    return b"".join(pieces)  # the one copy of the conversation


def _encode_preamble(preamble: Preamble) -> bytes:
    """All that stands before the first turn: constant options, tools, instructions, and the mark behind them."""
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
    """Each turn comes with a comma before it; before the first that is not empty nothing stands."""
    for place in range(first, len(pieces)):
        if pieces[place]:
            pieces[place] = pieces[place][1:]
            return


# ── Options ────────────────────────────────────────────────────────────────────────────────────────


def _build_options(request: ModelRequest) -> dict[str, Any]:
    """What may differ from one request of a run to the next, and the mark behind the last turn."""
    settings, longest = request.settings, request.settings.max_tokens or request.profile.max_output
    options: dict[str, Any] = {} if request.aside else {"cache_control": _CACHE_MARK}
    if settings.reasoning is not None:
        longest = longest or _DEFAULT_MAX_TOKENS_WITH_REASONING
        if request.profile.thinking == "adaptive":
            options["output_config"] = {"effort": settings.reasoning}
        if thinking := _thinking_option(request, min(_THINKING_BUDGETS[settings.reasoning], longest // 2)):
            options["thinking"] = thinking
    if settings.temperature is not None and "thinking" not in options:  # it takes one or the other
        options["temperature"] = settings.temperature
    if request.tool_choice == "none" and request.preamble.tools:
        # The tools are sent even if none may be called: without them the prefix would be another one.
        options["tool_choice"] = {"type": "none"}
    return {"max_tokens": longest or DEFAULT_MAX_TOKENS, **options}


def _thinking_option(request: ModelRequest, budget: int) -> dict[str, Any] | None:
    """How thinking is asked for; None where it cannot be. With a budget it cannot be in the middle of a turn that
    began without it, or that another model began; and a turn goes on as long as calls are answered."""
    if request.plain:
        return None
    if request.profile.thinking == "adaptive":
        return {"type": "adaptive", "display": "summarized"}  # else some models keep it to themselves
    if (first := _find_turn_start(request.conversation.messages)) is not None:
        opening = next(iter(first.parts), None)
        if not (isinstance(opening, Thinking) and opening.belongs_to(request.provider, request.model)):
            return None
    return {"type": "enabled", "budget_tokens": budget} if budget >= _MIN_THINKING_BUDGET else None


def _find_turn_start(messages: Sequence[Message]) -> Message | None:
    """The assistant's first message of the turn that the next reply goes on with; None if the reply begins a turn.
    What a user says together with the results of calls ends no turn."""
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
    """Where the request before ended, if so many blocks have come since that the mark behind the last turn does not
    look back so far: without one of its own, nothing of the conversation would be found in the cache."""
    blocks = 0
    for place in range(len(messages) - 1, 0, -1):
        blocks += len(messages[place].parts)
        if messages[place].role == "assistant":
            far = blocks > _CACHE_LOOKBACK_BLOCKS and messages[place - 1].role != "assistant"
            return place - 1 if far else None
    return None


def _add_cache_mark(turn: bytes) -> bytes:
    """A turn with a mark in its last block."""
    return turn[:-3] + _ENCODED_CACHE_MARK + turn[-3:] if turn else turn


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def _make_encoder(target: str) -> Callable[[Message], bytes]:
    """Encodes messages for one model, `provider/model`: reasoning goes back only to where it came from."""
    provider, _, model = target.partition("/")

    def encode_message(message: Message) -> bytes:
        blocks = [block for part in message.sent if (block := _make_block(part, provider, model)) is not None]
        while blocks and blocks[-1]["type"] in _REASONING_TYPES:
            blocks.pop()  # reasoning that led to nothing is not taken back
        role = b"assistant" if message.role == "assistant" else b"user"
        return b',{"role":"%b","content":[%b]}' % (role, b",".join(map(encode, blocks))) if blocks else b""

    return encode_message


def _make_block(part: Part, provider: str, model: str) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if _is_not_blank(text) else None
        case ToolUse(call_id, name, arguments):
            # Models call tools that do not exist, by names that none may have.
            asked = {"id": sanitize_id(call_id), "name": sanitize_id(name), "input": as_arguments(arguments)}
            return {"type": "tool_use", **asked}
        case ToolResult(call_id, content, is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": sanitize_id(call_id)}
            if is_error:  # the one kind of result that must not be empty
                return result | {"content": content if _is_not_blank(content) else _EMPTY_ERROR, "is_error": True}
            return result | {"content": content} if _is_not_blank(content) else result
        case Thinking():
            if not part.belongs_to(provider, model):
                return None
            if part.signature is not None:
                return {"type": "thinking", "thinking": part.text, "signature": part.signature}
            return {"type": "redacted_thinking", "data": part.sealed}
        case Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _is_not_blank(text: str) -> bool:
    return bool(text) and not text.isspace()


def _key_headers(key: str) -> dict[str, str]:
    return {"x-api-key": key}


FORMAT = WireFormat(
    WIRE_FORMAT, "/messages", encode_request, AnthropicReply, {"anthropic-version": VERSION}, _key_headers
)
