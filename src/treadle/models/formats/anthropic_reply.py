"""Assembles a reply in the `anthropic_messages` format from its events: blocks, usage, end."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.events import StopReason
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.finish import STOP_REASONS, Ending, classify_finish_word
from treadle.models.http.reported_error import find_reported_error
from treadle.models.http.wire import (
    NO_ARGUMENTS,
    UNREADABLE,
    UnusableReply,
    as_fields,
    check_arguments,
    check_end,
    check_parts,
    encode,
    estimate_tokens,
    make_reader,
    normalize_object,
    read_count,
)
from treadle.ports.model import CallDelta, Completed, ModelRequest, ReasoningDelta, Show, TextDelta

_DELTA_OF_BLOCK = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}
"""The block types that arrive in pieces, and the delta type of each."""
_KNOWN_KINDS = {
    "content_block_start": {*_DELTA_OF_BLOCK, "redacted_thinking"},
    "content_block_delta": {*_DELTA_OF_BLOCK.values(), "signature_delta"},
}
"""The known types of blocks and deltas."""
_EVENTS_READ_WHOLE = {*_KNOWN_KINDS, "message_start", "message_delta", "message", "error"}
"""The events that must be decoded completely."""


_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _StopDetails(Struct, gc=False):
    explanation: str | None = None


class _Delta(Struct, gc=False):
    """A piece of a block, or the end of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Block(Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Message(Struct, gc=False):
    usage: Any = None


class AnthropicEvent(Struct, gc=False):
    type: str = ""
    index: int | None = None
    message: _Message | str | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None
    # Of a complete message, from servers that do not stream:
    content: list[_Block] | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _EventSketch(Struct, gc=False):
    """The fields of an event that show whether it is a known one."""

    type: str = ""
    index: Any = None
    content_block: Any = None
    delta: Any = None


_decode = msgspec.json.Decoder(AnthropicEvent).decode
_read = make_reader(AnthropicEvent)
_read_sketch = make_reader(_EventSketch)


def _read_unusual(payload: bytes) -> AnthropicEvent:
    """Return an event with lone surrogates, or a placeholder for an event of a later version of the format."""
    try:
        return _read(payload)
    except UnusableReply:
        sketch = _read_sketch(payload)
        inner = sketch.content_block if sketch.type == "content_block_start" else sketch.delta
        kind = cast("dict[str, Any]", inner).get("type") if isinstance(inner, dict) else None
        unknown = isinstance(kind, str) and sketch.type in _KNOWN_KINDS and kind not in _KNOWN_KINDS[sketch.type]
        if sketch.type in _EVENTS_READ_WHOLE and not unknown:
            raise
        index = sketch.index if isinstance(sketch.index, int) else None
        return AnthropicEvent(sketch.type, index, content_block=_Block(str(kind)), delta=_Delta(str(kind)))


class _OpenBlock:
    """The part of a block received so far."""

    __slots__ = ("delta_type", "ended", "kind", "pieces", "place", "shown", "signature", "start")

    def __init__(self, block: _Block, place: int) -> None:
        self.start = block
        self.kind = block.type
        self.delta_type = _DELTA_OF_BLOCK.get(block.type)
        """The delta type that adds to the block."""
        self.place = place
        """Position among the calls of this reply."""
        self.signature = block.signature
        begun = block.text or block.thinking
        self.pieces: list[str] = [begun] if begun and self.delta_type else []
        self.shown = 0
        """How many pieces have been shown."""
        self.ended = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnthropicReply:
    """The part of a reply received so far."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self.done = False
        self._blocks: list[_OpenBlock] = []
        self._by_index: dict[int | None, _OpenBlock] = {}
        """The blocks by the provider's index. If it uses an index twice, the latest block."""
        self._unshown: dict[_OpenBlock, None] = {}
        self._calls = 0
        self._max_calls = request.max_calls
        self._excess = 0
        self._beyond = _OpenBlock(_Block(), 0)
        """Stands for every call beyond the limit. It stores nothing."""
        self._usage: dict[str, int] = {}
        self._has_final_usage = False
        """The provider has reported the final output tokens. The count at the start is preliminary."""
        self._ending = Ending()

    def feed(self, payloads: list[bytes]) -> Any:
        """Add events. Stop at an event that reports an error, and return that error."""
        for payload in payloads:
            try:
                event = _decode(payload)
            except UNREADABLE:
                event = _read_unusual(payload)
            if event.type == "content_block_delta":
                self._add(event)
            elif event.error or event.type == "error":
                return event.error or event.message or "it did not say which"
            elif not event.type and (error := find_reported_error(payload)):
                return error
            else:
                self._handle_other(event)
                if self.done:
                    return None
        return None

    def _add(self, event: AnthropicEvent) -> None:
        block, delta = self._by_index.get(event.index), event.delta
        if block is None:
            raise UnusableReply(f"it continues block {event.index}, which it never started")
        if delta is None:
            return
        if delta.type == block.delta_type:
            if piece := delta.text or delta.partial_json or delta.thinking:
                block.pieces.append(piece)
                self._unshown[block] = None
        elif delta.type == "signature_delta":
            block.signature = delta.signature

    def _handle_other(self, event: AnthropicEvent) -> None:
        """Handle an event that is not a delta. Unknown events are ignored."""
        match event.type:
            case "content_block_start":
                self._begin(event.index, event.content_block or _Block())
            case "content_block_stop":
                if (begun := self._by_index.get(event.index)) is not None:
                    self._finish(begun)
                    if begun is self._beyond:
                        del self._by_index[event.index]
            case "message_start":
                if isinstance(event.message, _Message):
                    self._add_usage(event.message.usage)
            case "message_delta":
                delta = event.delta or _Delta()
                self._end(delta.stop_reason, delta.stop_details, event.usage)
            case "message_stop":
                self.done = True
            case "message":  # the complete reply, from servers that do not stream
                for index, block in enumerate(event.content or ()):
                    self._finish(self._begin(index, block))
                self._end(event.stop_reason, event.stop_details, event.usage)
                self.done = True
            case _:
                pass

    def _begin(self, index: int | None, block: _Block) -> _OpenBlock:
        if block.type == "tool_use" and self._calls >= self._max_calls:
            self._excess += 1
            self._by_index[index] = self._beyond
            return self._beyond
        check_parts(len(self._blocks))
        begun = self._by_index[index] = _OpenBlock(block, self._calls)
        self._calls += begun.kind == "tool_use"
        self._blocks.append(begun)
        self._unshown[begun] = None
        return begun

    def _finish(self, block: _OpenBlock) -> None:
        block.ended = True
        given = block.start.input
        if block.kind == "tool_use" and given and block.pieces:
            check_arguments(block.start.name or "", block.text, encode(given).decode())
        elif block.kind == "tool_use" and given:  # the arguments arrived at once, not in pieces
            block.pieces.append(encode(given).decode())
            self._unshown[block] = None

    def _end(self, stop_reason: str | None, details: _StopDetails | None, usage: Any) -> None:
        if stop_reason:
            self._ending.add(stop_reason)
        if (
            stop_reason
            and classify_finish_word(stop_reason) == "filtered"
            and details is not None
            and details.explanation
        ):
            has_text = any(block.kind == "text" and block.pieces for block in self._blocks)
            self._begin(None, _Block("text", "\n\n" + details.explanation if has_text else details.explanation))
        self._add_usage(usage)
        self._has_final_usage = (
            self._has_final_usage or read_count(as_fields(usage).get("output_tokens")) is not None
        )

    def _add_usage(self, said: Any) -> None:
        """Store the reported counts. Counts are totals: the latest value replaces earlier ones."""
        fields = as_fields(said)
        for name in _USAGE_FIELDS if fields else ():
            if value := read_count(fields.get(name)):
                self._usage[name] = value

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call. Pieces that arrived together are shown together."""
        if not self._unshown:
            return
        for block in self._unshown:
            text = "".join(block.pieces[block.shown :])
            block.shown = len(block.pieces)
            if block.kind == "tool_use":
                show(CallDelta(block.place, block.start.name or "", text))
            elif text:
                show(TextDelta(text) if block.kind == "text" else ReasoningDelta(text))
        self._unshown.clear()

    # ── The complete reply ─────────────────────────────────────────────────────────────────────────

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply. Raise UnusableReply if it is incomplete."""
        if not self.done:
            raise UnusableReply("it ended without its last event, so it is probably cut off")
        ending = self._ending
        if ending.end is None:
            ending.add("null", "unknown")
        check_end(ending, has_calls=self._calls > 0)
        parts = [part for block in self._blocks if (part := self._make_part(block)) is not None]
        stop = self._stop(has_calls=any(isinstance(part, ToolUse) for part in parts))
        raw_stop = ending.word_for(stop)
        dropped = self._list_dropped_calls()
        usage, refusal = self.usage(sent_bytes), ending.refusal
        return Completed(
            parts=tuple(parts),
            stop=stop,
            usage=usage,
            raw_stop=raw_stop,
            dropped_calls=dropped,
            excess_calls=self._excess,
            refusal=refusal,
            window_full=ending.window_full,
        )

    def _list_dropped_calls(self) -> tuple[str, ...]:
        """Return the names of the calls left out because the reply was cut or filtered."""
        if self._ending.runs_calls:
            return ()
        return tuple([block.start.name or "" for block in self._blocks if block.kind == "tool_use"])

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate. The provider counts cached input
        separately."""
        said = self._usage
        read, written = said.get("cache_read_input_tokens", 0), said.get("cache_creation_input_tokens", 0)
        sent, received = said.get("input_tokens", 0) + read + written, said.get("output_tokens", 0)
        if sent and self._has_final_usage:
            return Usage(sent, received, read, written)
        received_characters = sum(len(piece) for block in self._blocks for piece in block.pieces)
        return Usage(
            sent or estimate_tokens(sent_bytes),
            max(received, estimate_tokens(received_characters)),
            read,
            written,
            estimated=True,
        )

    def _stop(self, *, has_calls: bool) -> StopReason:
        stop = STOP_REASONS.get(self._ending.end or "unknown", "other")
        if stop == "end_turn" and has_calls:
            return "tool_use"
        if stop == "tool_use" and not has_calls:
            return "other"
        return stop

    def _make_part(self, block: _OpenBlock) -> Part | None:
        match block.kind:
            case "text":
                return Text(block.text) if block.pieces else None
            case "thinking":
                signature = block.signature
                if not block.text and not signature:
                    return None
                field = None if signature else "thinking"
                return Thinking(block.text, self._provider, self._model, signature, field=field)
            case "redacted_thinking":
                sealed = block.start.data
                return Thinking("", self._provider, self._model, sealed=sealed) if sealed else None
            case "tool_use":
                return self._make_call(block)
            case _:
                return None  # a block type of a later version of the format

    def _make_call(self, block: _OpenBlock) -> ToolUse | None:
        if not self._ending.runs_calls:
            return None
        text, name = block.text.strip(), block.start.name
        # A call without arguments is complete only if its block has ended.
        arguments = "{}" if text in NO_ARGUMENTS and block.ended else normalize_object(text)
        if name and arguments is not None:
            return ToolUse(block.start.id or "", name, arguments)
        what = "has arguments that are not a JSON object" if name else "has no name"
        raise UnusableReply(f"call {block.place + 1} of it ({name or 'unnamed'}) {what}, so it is probably cut off")
