"""The `responses` wire format of OpenAI. Streaming only. Nothing is stored at the provider: each request is
complete.

Each message is encoded once for each model that it is sent to. The conversation, which grows, comes after the
constant part and before the options, which may differ per request. Each request of a run therefore starts with the
bytes of the previous one."""

from typing import Any

import msgspec

from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse
from treadle.models.formats.output_schema import encode_responses_option
from treadle.models.formats.reasoning_return import REASONING_PLACEHOLDER, ReasoningReturn
from treadle.models.formats.responses_items import make_lists
from treadle.models.formats.responses_reply import ResponsesReply
from treadle.models.formats.tagged_reply import TaggedReply
from treadle.models.http.client import WireFormat
from treadle.models.http.wire import encode, sanitize_id
from treadle.ports.model import ModelRequest, Preamble

WIRE_FORMAT = "responses"
_MISSING_REASONING = {"type": "reasoning", "id": "rs_missing", **make_lists([], [REASONING_PLACEHOLDER])}
_INCLUDE_SEALED_REASONING = b'"include":["reasoning.encrypted_content"],'


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of a request. Cached bytes are reused where the request has them."""
    messages = _MessageEncoder(request)
    pieces = [b'{"model":', encode(request.model), b","]
    if request.profile.sealed_reasoning and not request.plain:
        pieces.append(_INCLUDE_SEALED_REASONING)
    pieces.append(request.preamble.encode_as(WIRE_FORMAT, _encode_preamble))
    first = len(pieces)
    pieces += request.conversation.encode_as(f"{WIRE_FORMAT}:{messages.key}", messages.encode)
    while first < len(pieces) and not pieces[first]:
        first += 1
    if first < len(pieces):
        pieces[first] = pieces[first].removeprefix(b",")  # it is the first item
    pieces += (b"]", _encode_options(request))
    if request.constrained:
        pieces.append(encode_responses_option(request.preamble))
    pieces.append(b"}")
    return b"".join(pieces)  # the only copy of the conversation


def _encode_preamble(preamble: Preamble) -> bytes:
    """Encode everything before the first turn: constant options, tools, instructions."""
    head = b'"stream":true,"store":false,'
    if preamble.tools:
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                "strict": False,
            }
            for tool in preamble.tools
        ]
        head += b'"tools":%b,' % encode(tools)
    if preamble.system:
        head += b'"instructions":%b,' % encode(preamble.system)
    return head + b'"input":['


def _encode_options(request: ModelRequest) -> bytes:
    """Return the options that may differ between the requests of a run."""
    settings = request.settings
    effort = request.profile.fit_effort(settings.reasoning)
    options = {
        # The tools are sent even if none may be called: without them the prefix would change.
        "tool_choice": _encode_tool_choice(request),
        "parallel_tool_calls": settings.parallel_tool_calls if request.preamble.tools else None,
        "max_output_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning": None if effort is None else {"effort": effort},
    }
    given = {name: value for name, value in options.items() if value is not None}
    return b"," + encode(given)[1:-1] if given else b""


def _encode_tool_choice(request: ModelRequest) -> object:
    """Return the option, or None for the default."""
    if request.tool_choice == "auto" or not request.preamble.tools:
        return None
    return {"type": "function", "name": request.named_tool} if request.named_tool else request.tool_choice


# ── Messages ───────────────────────────────────────────────────────────────────────────────────────


class _MessageEncoder:
    """Encodes the messages of one request, in order. Reasoning is sent back only to its own model. If it is not
    sealed, it is sent back as the profile says."""

    def __init__(self, request: ModelRequest) -> None:
        self._reasoning = ReasoningReturn(request)
        self.key = self._reasoning.key

    def encode(self, message: Message) -> bytes:
        """Return the items of one message, each with a leading comma."""
        returns = self._reasoning.applies_to(message)
        if message.role == "user":
            made = [_make_user_item(message)]
        else:
            made = [self._make_item(part, returns) for part in message.parts]
        items = [item for item in made if item is not None]
        while items and _is_reasoning(items[-1]):
            items.pop()  # the API refuses reasoning without the item that follows it
        if self._reasoning.is_filled and message.role == "assistant" and items and not _is_reasoning(items[0]):
            items.insert(0, _MISSING_REASONING)
        return b"".join([b"," + encode(item) for item in items])

    def _make_item(self, part: Part, returns: bool) -> dict[str, Any] | None:
        if not isinstance(part, Thinking):
            return _make_item(part)
        provider, model = self._reasoning.provider, self._reasoning.model
        if part.sealed is not None:
            is_sent = part.item_id is not None and part.belongs_to(provider, model)
        else:
            is_sent = returns and part.is_block_from(provider, model)
        return _make_reasoning(part) if is_sent else None


def _is_reasoning(item: dict[str, Any]) -> bool:
    return item.get("type") == "reasoning"


def _make_reasoning(part: Thinking) -> dict[str, Any]:
    """Return a reasoning item in the form in which it came."""
    item: dict[str, Any] = {"type": "reasoning"}
    if part.item_id is not None:
        item["id"] = part.item_id
    texts = [part.text] if part.text else []
    if part.details is not None:
        item |= msgspec.json.decode(part.details)
    elif part.field in (None, "summary_text"):
        item |= make_lists(texts, [])
    else:
        item |= make_lists([], texts)
    return item if part.sealed is None else item | {"encrypted_content": part.sealed}


def _make_user_item(message: Message) -> dict[str, Any] | None:
    """Return the item of a user message: plain text if there are no images."""
    if not any(isinstance(part, Image) for part in message.parts):
        text = "".join([part.text for part in message.sent if isinstance(part, Text)])
        return {"role": "user", "content": text} if text else None
    content: list[dict[str, Any]] = []
    for part in message.sent:
        if isinstance(part, Text) and part.text:
            content.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Image):
            content.append(_make_image(part))
    return {"role": "user", "content": content}


def _make_output(content: str, images: tuple[Image, ...]) -> list[dict[str, Any]]:
    """Return the output of a call with images."""
    return [{"type": "input_text", "text": content}, *map(_make_image, images)]


def _make_image(image: Image) -> dict[str, Any]:
    url = f"data:{image.media_type};base64,{image.data}"
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _make_item(part: Part) -> dict[str, Any] | None:
    """Return the item of a part from an assistant or a tool, apart from reasoning."""
    match part:
        case Text(text):
            return {"role": "assistant", "content": text} if text else None
        case ToolUse(call_id, name, arguments):
            return {
                "type": "function_call",
                "call_id": sanitize_id(call_id),
                "name": sanitize_id(name),  # a model may have invented it
                "arguments": arguments or "{}",
            }
        case ToolResult(call_id, content):
            output = _make_output(content, part.images) if part.images else content
            return {"type": "function_call_output", "call_id": sanitize_id(call_id), "output": output}
        case Thinking() | Image():
            return None  # only users send images


def _start_reply(request: ModelRequest) -> TaggedReply:
    return TaggedReply(ResponsesReply(request), request)


FORMAT = WireFormat(WIRE_FORMAT, "/responses", encode_request, _start_reply)
