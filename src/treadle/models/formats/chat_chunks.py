"""The chunks of a `chat_completions` reply, as decoded from the wire."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.runs import Usage
from treadle.models.http.wire import UnusableReply, as_fields, make_reader, read_count

OPAQUE_FIELD = "reasoning_opaque"


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    parameters: Any = None
    """The arguments, from servers that name them like those of a definition."""


class Fragment(Struct, gc=False):
    """A piece of a call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Any = None
    """Data that the provider requires back with the call, such as the signature of a thought."""


class ContentPart(Struct, gc=False):
    """A piece of a message, from servers that send content as a list. Reasoning is a list of its own."""

    type: Any = None
    text: str | None = None
    thinking: list["ContentPart | str"] | str | None = None


THOUGHT_TYPES = frozenset({"thinking", "thought", "reasoning", "reasoning_text"})
"""The types of content parts that are thoughts, in whichever field their text is."""


class ChunkDelta(Struct, gc=False):
    content: str | list[ContentPart | str] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    reasoning_text: Any = None
    reasoning_opaque: Any = None
    """Reasoning that only the provider can read. Copilot sends it with the readable `reasoning_text`."""
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None
    function_call: Function | None = None
    """A call in the format that preceded `tool_calls`."""
    extra_content: Any = None


class ReplyChunkChoice(Struct, gc=False):
    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None
    """The complete reply, from servers that do not stream."""
    finish_reason: Any = None
    native_finish_reason: Any = None
    """The finish word of the provider behind a gateway."""
    index: Any = None
    error: Any = None


class PromptFeedback(Struct, rename="camel", gc=False):
    """What Google says about a prompt that it does not answer."""

    block_reason: Any = None


class Chunk(Struct, gc=False):
    choices: list[ReplyChunkChoice] | None = None
    usage: Any = None
    error: Any = None
    prompt_feedback: PromptFeedback | None = msgspec.field(default=None, name="promptFeedback")


decode_chunk = msgspec.json.Decoder(Chunk).decode
_read_exactly = make_reader(Chunk)
_decode_any = msgspec.json.Decoder().decode


def read_chunk(payload: bytes) -> Chunk:
    """Decode a chunk that `decode_chunk` cannot: one with lone surrogates, or with fields of another type, such as
    an index that is text. Raise UnusableReply."""
    try:
        return _read_exactly(payload)
    except UnusableReply:
        try:
            return msgspec.convert(_normalize_types(_decode_any(payload)), Chunk)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        raise


def _normalize_types(chunk: Any) -> Any:
    """Return a chunk whose calls and texts have the expected types where their meaning is clear."""
    choices = as_fields(chunk).get("choices")
    for choice in cast("list[Any]", choices) if isinstance(choices, list) else ():
        for part in (as_fields(as_fields(choice).get("delta")), as_fields(as_fields(choice).get("message"))):
            if type(part.get("content")) in (int, float):
                part["content"] = str(part["content"])
            calls: Any = part.get("tool_calls")
            calls = [calls] if isinstance(calls, dict) else calls
            if isinstance(calls, list):
                part["tool_calls"] = [
                    _normalize_call(as_fields(call)) for call in cast("list[Any]", calls) if isinstance(call, dict)
                ]
    return chunk


def _normalize_call(call: dict[str, Any]) -> dict[str, Any]:
    index, call_id = read_count(call.get("index")), call.get("id")
    return {**call, "index": index, "id": str(call_id) if type(call_id) is int else call_id}


def read_usage(usage: Any) -> Usage | None:
    """Return the usage reported by the provider, or None."""
    fields = as_fields(usage)
    sent, received = read_count(fields.get("prompt_tokens")), read_count(fields.get("completion_tokens"))
    if not (sent or received):
        return None
    details = as_fields(fields.get("prompt_tokens_details"))
    read, written = read_count(details.get("cached_tokens")), read_count(details.get("cache_write_tokens"))
    return Usage(sent or 0, received or 0, read or 0, written or 0)


def number_calls(message: ChunkDelta | None) -> ChunkDelta | None:
    """Return a complete message with an index on each call. Such calls arrive without one, and their position
    tells them apart."""
    if message is not None:
        for place, call in enumerate(message.tool_calls or ()):
            call.index = place if call.index is None else call.index
    return message
