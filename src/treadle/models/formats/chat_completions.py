"""The `chat_completions` wire format, for any OpenAI-compatible endpoint. Streaming only.

Each message is encoded once. The conversation, which grows, comes after the tools, which do not change, and before
the options, which may differ per request. Each request of a run therefore starts with the bytes of the previous
one."""

from treadle.models.emulated_tools import wire_format as emulated_tools
from treadle.models.formats.chat_messages import ChatMessages, merge_user_messages
from treadle.models.formats.chat_reply import ChatReply
from treadle.models.formats.output_schema import encode_chat_option
from treadle.models.formats.sampling import encode_sampling
from treadle.models.http.client import PartialReply, WireFormat
from treadle.models.http.wire import encode
from treadle.ports.model import ModelRequest, Preamble

WIRE_FORMAT = "chat_completions"


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of a request. Cached bytes are reused where the request has them."""
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encode_as(WIRE_FORMAT, _encode_preamble))
    first = len(pieces)
    messages = ChatMessages(request)
    pieces += request.conversation.encode_as(f"{WIRE_FORMAT}:{messages.key}", messages.encode)
    if request.profile.alternating_roles or request.plain:
        pieces[first:] = merge_user_messages(pieces[first:])
    if len(pieces) > first and not request.preamble.system:
        pieces[first] = pieces[first].removeprefix(b",")  # it is the first message
    pieces += (b"]", _encode_options(request))
    if request.constrained:
        pieces.append(encode_chat_option(request.preamble))
    pieces.append(b"}")
    return b"".join(pieces)  # the only copy of the conversation


def _encode_preamble(preamble: Preamble) -> bytes:
    """Encode everything before the first turn: constant options, tools, the system message."""
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
    """Return the options that may differ between the requests of a run."""
    settings = request.settings
    options = {
        # The tools are sent even if none may be called: without them the prefix would change.
        "tool_choice": _encode_tool_choice(request),
        "parallel_tool_calls": settings.parallel_tool_calls if request.preamble.tools else None,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        **encode_sampling(settings),
        "reasoning_effort": request.profile.fit_effort(settings.reasoning),
    }
    given = request.profile.sampling | {name: value for name, value in options.items() if value is not None}
    return b"," + encode(given)[1:-1] if given else b""


def _encode_tool_choice(request: ModelRequest) -> object:
    """Return the option, or None for the default."""
    if request.tool_choice == "auto" or not request.preamble.tools:
        return None
    if request.named_tool:
        return {"type": "function", "function": {"name": request.named_tool}}
    return request.tool_choice


def _emulates_tools(request: ModelRequest) -> bool:
    """Return whether the model has no native tool calls in this format and must write its calls as text."""
    return request.profile.tools != "native" and bool(request.preamble.tools)


def _encode_any_request(request: ModelRequest) -> bytes:
    return emulated_tools.encode_request(request) if _emulates_tools(request) else encode_request(request)


def _new_reply(request: ModelRequest) -> PartialReply:
    return emulated_tools.new_reply(request) if _emulates_tools(request) else ChatReply(request)


FORMAT = WireFormat(WIRE_FORMAT, "/chat/completions", _encode_any_request, _new_reply)
