"""Tool calls for models that cannot make them natively, in the `chat_completions` format: the tools are described
in the system message, and calls and results are words. The profile says how a model replies: `schema`, held to a
JSON schema of all that it may say, or `fenced`, in text with its calls as fenced JSON.

As everywhere, what grows stands before what may differ, and each message is encoded once."""

from typing import Any

import msgspec

from treadle.domain.messages import Image, Message, Part, Text, ToolResult
from treadle.domain.models import ToolStyle
from treadle.domain.observations import extract_text
from treadle.models.emulated_tools.fenced_parser import FencedParser
from treadle.models.emulated_tools.reply import EmulatedReply
from treadle.models.emulated_tools.reply_schema import build_reply_schema
from treadle.models.emulated_tools.schema_parser import SchemaParser
from treadle.models.emulated_tools.tool_descriptions import write_instructions
from treadle.models.http.wire import as_arguments, encode
from treadle.ports.model import Conversation, ModelRequest, Preamble, ToolChoice

_NO_IMAGE = "\n[An image was here; it cannot be shown.]\n"
_AFTER_A_RESULT = "If nothing is missing, use this result to answer."
"""Without it, small models ask for the same thing again."""
_AFTER_RESULTS = "If nothing is missing, use these results to answer."


def encode_request(request: ModelRequest) -> bytes:
    """The body of a request, from bytes that are kept wherever the request has them."""
    style = request.profile.tools
    key = f"chat_completions/{style}"
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encoded_as(key, lambda preamble: _encode_preamble(preamble, style)))
    pieces += request.conversation.encoded_as(key, _MessageEncoder(request.conversation, style).encode)
    if request.aside:
        pieces.append(b"," + encode({"role": "user", "content": request.aside}))
    pieces += (b"]", _encode_options(request), b"}")
    return b"".join(pieces)


def new_reply(request: ModelRequest) -> EmulatedReply:
    """What will come of the request. Only tools that it offers can be called."""
    offered = frozenset(tool.name for tool in request.preamble.tools)
    allowed = offered if request.tool_choice == "auto" else frozenset[str]()
    reading = FencedParser(allowed) if request.profile.tools == "fenced" else SchemaParser(allowed)
    return EmulatedReply(request, reading)


def _encode_preamble(preamble: Preamble, style: ToolStyle) -> bytes:
    system = {"role": "system", "content": write_instructions(preamble.system, preamble.tools, style)}
    return b'"stream":true,"stream_options":{"include_usage":true},"messages":[' + encode(system)


def _encode_options(request: ModelRequest) -> bytes:
    """What may differ from one request of a run to the next."""
    settings = request.settings
    options = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "reasoning_effort": settings.reasoning,
    }
    given = {name: value for name, value in options.items() if value is not None}
    encoded = b"," + encode(given)[1:-1] if given else b""
    if request.profile.tools == "schema":
        choice = request.tool_choice
        key = f"chat_completions/schema/{choice}"
        encoded += request.preamble.encoded_as(key, lambda preamble: _encode_format(preamble, choice))
    return encoded


def _encode_format(preamble: Preamble, choice: ToolChoice) -> bytes:
    schema = build_reply_schema(preamble.tools if choice == "auto" else ())
    return b',"response_format":' + encode(
        {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    )


class _MessageEncoder:
    """Encodes the messages of a conversation, which follow one another: a result is told with the name of its tool,
    and that stands in the call before it."""

    def __init__(self, conversation: Conversation, style: ToolStyle) -> None:
        self._conversation = conversation
        self._style: ToolStyle = style
        self._names: dict[str, str] = {}
        """Of the tools that were called, by the id of the call."""

    def encode(self, message: Message) -> bytes:
        """The wire message, a comma before it; nothing for one that has nothing to say."""
        match message.role:
            case "user":
                return _encode_message("user", "".join(map(_part_text, message.sent)))
            case "assistant":
                said = self._said(message)
                return _encode_message("assistant", said) if said else b""
            case "tool":
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                return _encode_message("user", self._results(results)) if results else b""

    def _said(self, message: Message) -> str:
        """What the model said, in the form in which it is to reply; reasoning has no place in it."""
        said: list[str] = []
        if message.text:
            said.append(message.text if self._style == "fenced" else _encode_text({"answer": message.text}))
        for call in message.calls:
            self._names[call.call_id] = call.name
            written = _encode_text({"tool": call.name, "arguments": as_arguments(call.arguments)})
            said.append(f"```json\n{written}\n```" if self._style == "fenced" else written)
        return "\n".join(said)

    def _results(self, results: list[ToolResult]) -> str:
        lines: list[str] = []
        for result in results:
            what = "Error" if result.is_error else "Result"
            lines.append(f"{what} of {self._name(result.call_id)}: {extract_text(result.content) or 'nothing'}")
        if not all(result.is_error for result in results):  # an error says itself what to do next
            lines.append(_AFTER_A_RESULT if len(results) == 1 else _AFTER_RESULTS)
        return "\n".join(lines)

    def _name(self, call_id: str) -> str:
        """The tool that was called. The call may have been encoded long ago; then it is among the latest."""
        if call_id not in self._names:
            for message in reversed(self._conversation.messages):
                if found := {call.call_id: call.name for call in message.calls}:
                    self._names = found | self._names
                if call_id in found:
                    break
        return self._names.get(call_id, "the tool")


def _part_text(part: Part) -> str:
    match part:
        case Text(text):
            return text
        case Image():
            return _NO_IMAGE
        case _:
            return ""


def _encode_message(role: str, content: str) -> bytes:
    return b"," + encode({"role": role, "content": content})


def _encode_text(value: dict[str, Any]) -> str:
    """On one line, with the blanks that the system message shows too."""
    return msgspec.json.format(encode(value), indent=0).decode()
