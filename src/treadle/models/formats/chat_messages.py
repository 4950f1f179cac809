"""Encodes the messages of a conversation in the `chat_completions` format, with the reasoning that is sent back.

Reasoning is sent back only to the provider and model that it came from, in the field in which it arrived. Each
message is encoded once, so its bytes never depend on later messages: a request starts with the bytes of the
previous one."""

import re
from typing import Any

import msgspec

from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse
from treadle.models.formats.chat_chunks import OPAQUE_FIELD
from treadle.models.formats.reasoning_return import REASONING_PLACEHOLDER, ReasoningReturn
from treadle.models.formats.thought_tags import find_closing_tag
from treadle.models.http.wire import encode, sanitize_id
from treadle.ports.model import ModelRequest

MAX_REASONING_CHARACTERS = 400_000
"""Limit on the reasoning of one reply that is sent back. Of longer reasoning, the start and the end are sent."""
IMAGES_OF_RESULT = "(Images of the result of {call_id}:)"
_SKIP_SIGNATURE_CHECK = msgspec.Raw(b'{"google":{"thought_signature":"skip_thought_signature_validator"}}')
"""What Google accepts with a call made by another model."""
_GEMINI = re.compile(r"gemini", re.IGNORECASE)
_USER_MESSAGE_START = b',{"role":"user","content":"'


class ChatMessages:
    """Encodes the messages of one conversation, in order."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self._plain = request.plain
        self._reasoning = ReasoningReturn(request)
        self._sends_images = request.profile.image_results

    @property
    def key(self) -> str:
        """Return the cache key: everything apart from the message that its bytes depend on."""
        return f"{self._reasoning.key}:images" if self._sends_images else self._reasoning.key

    def encode(self, message: Message) -> bytes:
        """Return the wire messages of one message, each with a leading comma; b"" for a message without
        content."""
        returns = self._reasoning.applies_to(message)
        match message.role:
            case "user":
                return b"," + encode({"role": "user", "content": _user_content(message)})
            case "assistant":
                return self._encode_assistant(message, returns)
            case "tool":
                results = [part for part in message.parts if isinstance(part, ToolResult)]
                return b"".join([*map(_encode_result, results), *self._encode_images(results)])

    def _encode_images(self, results: list[ToolResult]) -> list[bytes]:
        """Return a user message with the images of tool results, which the results themselves cannot carry here."""
        if not self._sends_images or not any(part.images for part in results):
            return []
        content: list[dict[str, Any]] = []
        for part in results:
            if part.images:
                content.append({"type": "text", "text": IMAGES_OF_RESULT.format(call_id=sanitize_id(part.call_id))})
                content += map(_make_image, part.images)
        return [b"," + encode({"role": "user", "content": content})]

    def _encode_assistant(self, message: Message, returns: bool) -> bytes:
        text, calls, reasoning = "", list[dict[str, Any]](), dict[str, Any]()
        for part in message.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, ToolUse):
                calls.append(self._call(part, is_first=not calls))
            elif isinstance(part, Thinking) and returns and part.is_from(self._provider, self._model):
                reasoning |= _reasoning_fields(part)
        if not text and not calls:
            return b""
        opening = reasoning.pop("", "")
        if self._reasoning.is_filled:
            reasoning.setdefault("reasoning_content", REASONING_PLACEHOLDER)
        content: str | None = opening + text
        fields: dict[str, Any] = {"role": "assistant", "content": content or None}
        if calls:
            fields["tool_calls"] = calls
        return b"," + encode(fields | reasoning)

    def _call(self, use: ToolUse, is_first: bool) -> dict[str, Any]:
        # A model may have invented the name, so it is sanitized like the id.
        function = {"name": sanitize_id(use.name), "arguments": use.arguments or "{}"}
        call: dict[str, Any] = {"id": sanitize_id(use.call_id), "type": "function", "function": function}
        if not self._plain and use.extra is not None and use.extra.is_from(self._provider, self._model):
            call["extra_content"] = msgspec.Raw(use.extra.content.encode())
        elif self._reasoning.is_filled and is_first and _GEMINI.search(self._model):
            call["extra_content"] = _SKIP_SIGNATURE_CHECK
        return call


def _reasoning_fields(part: Thinking) -> dict[str, Any]:
    """Return the message fields that carry reasoning. Text that belongs before the content has the key ""."""
    if part.field == OPAQUE_FIELD:
        return ({"reasoning_text": part.text} if part.text else {}) | {OPAQUE_FIELD: part.sealed}
    if part.details is not None:
        return {"reasoning_details": msgspec.Raw(part.details.encode())}
    text = part.text
    if len(text) > MAX_REASONING_CHARACTERS:
        half = MAX_REASONING_CHARACTERS // 2
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    field = part.field or ""
    if field.isidentifier():
        return {field: text}
    return {"": f"{field}\n{text}\n{find_closing_tag(field)}\n\n"}


def merge_user_messages(messages: list[bytes]) -> list[bytes]:
    """Return the wire messages with consecutive plain user messages merged, one paragraph each. The chat templates
    of some models refuse two in a row."""
    merged: list[bytes] = []
    for message in messages:
        if merged and message.startswith(_USER_MESSAGE_START) and merged[-1].startswith(_USER_MESSAGE_START):
            merged[-1] = merged[-1][:-2] + b"\\n\\n" + message[len(_USER_MESSAGE_START) :]
        elif message:
            merged.append(message)
    return merged


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    """Return the content of a user message. It is plain text if there are no images, because every server accepts
    that."""
    if not any(isinstance(part, Image) for part in message.parts):
        return "".join([part.text for part in message.sent if isinstance(part, Text)])
    content: list[dict[str, Any]] = []
    for part in message.sent:
        if isinstance(part, Text) and part.text:
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            content.append(_make_image(part))
    return content


def _make_image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}


def _encode_result(part: ToolResult) -> bytes:
    return b"," + encode({"role": "tool", "tool_call_id": sanitize_id(part.call_id), "content": part.content})
