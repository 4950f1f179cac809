"""Tool calls in the `chat_completions` format for models without native tool calls. The system message describes
the tools; calls and results are text. The profile selects how a model replies: `schema`, constrained by a JSON
schema of every possible reply, or `fenced`, as text with calls in fenced JSON.

As in every format, the part of a request that grows comes before the part that may differ, and each message is
encoded once."""

from typing import Any

import msgspec

from treadle.domain.messages import Image, Message, Part, Text, ToolResult
from treadle.domain.models import ToolStyle
from treadle.domain.observations import extract_text
from treadle.domain.tools import ToolChoiceMode
from treadle.models.emulated_tools.fenced_parser import FencedParser
from treadle.models.emulated_tools.reply import EmulatedReply
from treadle.models.emulated_tools.reply_schema import build_reply_schema
from treadle.models.emulated_tools.schema_parser import SchemaParser
from treadle.models.emulated_tools.tool_descriptions import write_instructions
from treadle.models.formats.output_schema import encode_chat_option
from treadle.models.formats.sampling import encode_sampling
from treadle.models.http.wire import as_arguments, encode
from treadle.ports.model import Conversation, ModelRequest, Preamble

_NO_IMAGE = "\n[An image was here; it cannot be shown.]\n"
_AFTER_A_RESULT = "If nothing is missing, use this result to answer."
"""Without this sentence, small models repeat the same request."""
_AFTER_RESULTS = "If nothing is missing, use these results to answer."


def encode_request(request: ModelRequest) -> bytes:
    """Return the body of a request. Cached bytes are reused where the request has them."""
    style = request.profile.tools
    key = f"chat_completions/{style}"
    pieces = [b'{"model":', encode(request.model), b","]
    pieces.append(request.preamble.encode_as(key, lambda preamble: _encode_preamble(preamble, style)))
    pieces += request.conversation.encode_as(key, _MessageEncoder(request.conversation, style).encode)
    pieces += (b"]", _encode_options(request), b"}")
    return b"".join(pieces)


def new_reply(request: ModelRequest) -> EmulatedReply:
    """Return an empty reply to a request. Only tools that the request offers can be called."""
    offered = frozenset(tool.name for tool in request.preamble.tools)
    allowed = frozenset[str]() if request.tool_choice == "none" else offered
    parser = (
        FencedParser(allowed, request.max_calls) if request.profile.tools == "fenced" else SchemaParser(allowed)
    )
    return EmulatedReply(request, parser)


def _encode_preamble(preamble: Preamble, style: ToolStyle) -> bytes:
    system = {"role": "system", "content": write_instructions(preamble.system, preamble.tools, style)}
    return b'"stream":true,"stream_options":{"include_usage":true},"messages":[' + encode(system)


def _encode_options(request: ModelRequest) -> bytes:
    """Return the options that may differ between the requests of a run."""
    settings = request.settings
    options = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        **encode_sampling(settings),
        "reasoning_effort": request.profile.fit_effort(settings.reasoning),
    }
    given = {name: value for name, value in options.items() if value is not None}
    encoded = b"," + encode(given)[1:-1] if given else b""
    if request.profile.tools == "schema":
        choice, tool = request.tool_choice, request.named_tool
        key = f"chat_completions/schema/{choice}/{tool}"
        encoded += request.preamble.encode_as(key, lambda preamble: _encode_format(preamble, choice, tool))
    elif request.constrained:
        encoded += encode_chat_option(request.preamble)
    return encoded


def _encode_format(preamble: Preamble, choice: ToolChoiceMode, named: str) -> bytes:
    tools = [tool for tool in preamble.tools if choice != "none" and named in ("", tool.name)]
    schema = build_reply_schema(tools, must_call=choice == "required")
    return b',"response_format":' + encode(
        {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    )


class _MessageEncoder:
    """Encodes the messages of a conversation in order. A result is written with the name of its tool, which is in
    the call before it."""

    def __init__(self, conversation: Conversation, style: ToolStyle) -> None:
        self._conversation = conversation
        self._style: ToolStyle = style
        self._names: dict[str, str] = {}
        """Tool names by call id."""

    def encode(self, message: Message) -> bytes:
        """Return the wire message with a leading comma, or b"" for a message without content."""
        match message.role:
            case "user":
                return _encode_message("user", "".join(map(_part_text, message.sent)))
            case "assistant":
                text = self._write_reply(message)
                return _encode_message("assistant", text) if text else b""
            case "tool":
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                return _encode_message("user", self._write_results(results)) if results else b""

    def _write_reply(self, message: Message) -> str:
        """Return what the model said, in the form in which it must reply. Reasoning is left out."""
        lines: list[str] = []
        if message.text:
            lines.append(message.text if self._style == "fenced" else _encode_text({"answer": message.text}))
        for call in message.calls:
            self._names[call.call_id] = call.name
            call_text = _encode_text({"tool": call.name, "arguments": as_arguments(call.arguments)})
            lines.append(f"```json\n{call_text}\n```" if self._style == "fenced" else call_text)
        return "\n".join(lines)

    def _write_results(self, results: list[ToolResult]) -> str:
        lines: list[str] = []
        for result in results:
            what = "Error" if result.is_error else "Result"
            lines.append(
                f"{what} of {self._find_tool_name(result.call_id)}: {extract_text(result.content) or 'nothing'}"
            )
        if not all(result.is_error for result in results):  # an error message says what to do next
            lines.append(_AFTER_A_RESULT if len(results) == 1 else _AFTER_RESULTS)
        return "\n".join(lines)

    def _find_tool_name(self, call_id: str) -> str:
        """Return the name of the tool that was called. The call may have been encoded in an earlier request; then
        search the latest messages."""
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
    """Return JSON on one line, spaced like the example in the system message."""
    return msgspec.json.format(encode(value), indent=0).decode()
