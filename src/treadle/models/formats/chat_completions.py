"""The `chat_completions` wire format, for any OpenAI-compatible endpoint. Streaming only.

Each message is encoded once ever. What grows, the conversation, stands after what does not, the tools, and
before what may differ per request, so that each request of a run begins with the bytes of the one before."""

from typing import Any

from treadle.domain.messages import Image, Message, Text, ToolResult, ToolUse
from treadle.models.described import calls as described_calls
from treadle.models.formats.chat_reply import ChatReply
from treadle.models.http.client import Format, Reply
from treadle.models.http.wire import encode, legal_id
from treadle.ports.model import ModelRequest, Preamble

WIRE_FORMAT = "chat_completions"


def encode_request(request: ModelRequest) -> bytes:
    """The body of a request, from bytes that are kept wherever the request has them."""
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encoded_as(WIRE_FORMAT, _encode_preamble))
    first = len(pieces)
    pieces += request.conversation.encoded_as(WIRE_FORMAT, _encode_message)
    if len(pieces) > first and not request.preamble.system:
        pieces[first] = pieces[first].removeprefix(b",")  # nothing stands before it
    if request.aside:
        pieces.append(b"," + encode({"role": "user", "content": request.aside}))
    pieces += (b"]", _encode_options(request), b"}")
    return b"".join(pieces)  # the one copy of the conversation


def _encode_preamble(preamble: Preamble) -> bytes:
    """All that stands before the first turn: constant options, tools, the system message."""
    head = b'"stream":true,"stream_options":{"include_usage":true},'
    if preamble.tools:
        tools = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
            }
            for tool in preamble.tools
        ]
        head += b'"tools":%b,' % encode(tools)
    system = encode({"role": "system", "content": preamble.system}) if preamble.system else b""
    return head + b'"messages":[' + system


def _encode_options(request: ModelRequest) -> bytes:
    """What may differ from one request of a run to the next."""
    settings = request.settings
    options = {
        # The tools are sent even if none may be called: without them the prefix would be another one.
        "tool_choice": "none" if request.tool_choice == "none" and request.preamble.tools else None,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "reasoning_effort": settings.reasoning,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return b"," + encode(given)[1:-1] if given else b""


def _encode_message(message: Message) -> bytes:
    """The wire messages of one message, a comma before each; nothing for one that this format has no words for."""
    match message.role:
        case "user":
            return b"," + encode({"role": "user", "content": _user_content(message)})
        case "assistant":
            return _encode_assistant(message)
        case "tool":
            return b"".join(
                [
                    b"," + encode({"role": "tool", "tool_call_id": legal_id(part.call_id), "content": part.content})
                    for part in message.parts
                    if isinstance(part, ToolResult)
                ]
            )


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    """Plain text where that is all there is: every server understands it."""
    if not any(isinstance(part, Image) for part in message.parts):
        return message.text
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            url = f"data:{part.media_type};base64,{part.data}"
            content.append({"type": "image_url", "image_url": {"url": url}})
    return content


def _encode_assistant(message: Message) -> bytes:
    """Reasoning is not sent back: this format has no place for it."""
    text, calls = "", list[dict[str, Any]]()
    for part in message.parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            # A model may have made the name up; it is held to the same form as the id.
            function = {"name": legal_id(part.name), "arguments": part.arguments or "{}"}
            calls.append({"id": legal_id(part.call_id), "type": "function", "function": function})
    if calls:
        return b"," + encode({"role": "assistant", "content": text or None, "tool_calls": calls})
    return b"," + encode({"role": "assistant", "content": text}) if text else b""


def _describes(request: ModelRequest) -> bool:
    """Whether the model cannot call tools in this format, and must describe its calls."""
    return request.profile.tools != "native" and bool(request.preamble.tools)


def _encode(request: ModelRequest) -> bytes:
    return described_calls.encode_request(request) if _describes(request) else encode_request(request)


def _reply_to(request: ModelRequest) -> Reply:
    return described_calls.reply_to(request) if _describes(request) else ChatReply(request)


FORMAT = Format(WIRE_FORMAT, "/chat/completions", _encode, _reply_to)
