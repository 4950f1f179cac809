"""A `chat_completions` reply whose text contains the tool calls. Only the parsing of the text depends on the
style. Reasoning, usage, errors and the end are handled as in any other reply."""

from collections.abc import Container
from typing import Any, Protocol

import msgspec

from treadle.domain.events import StopReason
from treadle.domain.json_text import is_too_deep
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.formats.chat_reply import ChatReply
from treadle.models.http.wire import UnusableReply, check_end, normalize_object
from treadle.ports.model import CallDelta, Completed, Delta, ModelRequest, ReasoningDelta, Show, TextDelta

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ReplyParser(Protocol):
    """Separates the text of a reply from the calls in it."""

    text: list[str]
    """The text for the user, in pieces. It only grows."""
    calls: list[ToolUse]
    """The complete calls."""
    excess: int
    """Number of calls beyond the limit, which are not in `calls`."""

    def feed(self, piece: str) -> None:
        """Parse one more piece."""
        ...

    def end(self, stop: StopReason) -> None:
        """Parse what was held back. No more text follows; `stop` is the stop reason from the wire format."""
        ...

    def stop(self) -> StopReason:
        """Return why the reply ended. Raise UnusableReply if a reply may not end like this."""
        ...


class EmulatedReply:
    """The part of a reply received so far."""

    def __init__(self, request: ModelRequest, parser: ReplyParser) -> None:
        self.done = False
        self._chat = ChatReply(request)
        self._parser = parser
        self._has_unparsed_end = True
        self._reasoning: list[str] = []
        self._text_shown = 0
        self._calls_shown = 0

    def feed(self, payloads: list[bytes]) -> Any:
        """Add chunks. Stop at a chunk that reports an error, and return that error."""
        error = self._chat.feed(payloads)
        self._chat.show_new(self._parse_delta)
        if self._has_unparsed_end and self._chat.ending.end is not None:
            self._has_unparsed_end = False
            stop = self._chat.stop
            self._parser.end("end_turn" if stop == "tool_use" else stop)
        self.done = self._chat.done
        return error

    def _parse_delta(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._has_unparsed_end = True
            self._parser.feed(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call: text for the user, and complete calls."""
        text, calls = self._parser.text, self._parser.calls
        if self._reasoning:
            show(ReasoningDelta("".join(self._reasoning)))
            self._reasoning.clear()
        if len(text) > self._text_shown:
            show(TextDelta("".join(text[self._text_shown :])))
            self._text_shown = len(text)
        for place in range(self._calls_shown, len(calls)):
            show(CallDelta(place, calls[place].name, calls[place].arguments))
        self._calls_shown = len(calls)

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply. Raise UnusableReply if it is incomplete or not what was requested."""
        whole, calls = self._chat.finish(sent_bytes), self._parser.calls
        if whole.dropped_calls or any(isinstance(part, ToolUse) for part in whole.parts):
            raise UnusableReply(
                "it calls a tool natively, which was not asked for; set `tools: native` for this model"
            )
        check_end(self._chat.ending, has_calls=bool(calls))
        stop = self._parser.stop()
        parts: list[Part] = [part for part in whole.parts if isinstance(part, Thinking)]
        if text := "".join(self._parser.text):
            parts.append(Text(text))
        dropped: tuple[str, ...] = ()
        if stop == "tool_use":
            parts.extend(calls)
        else:
            dropped = tuple(call.name for call in calls)
        raw_stop = whole.raw_stop if stop == "other" else None
        excess, refusal = self._parser.excess, whole.refusal
        return Completed(
            parts=tuple(parts),
            stop=stop,
            usage=whole.usage,
            raw_stop=raw_stop,
            dropped_calls=dropped,
            excess_calls=excess,
            refusal=refusal,
            window_full=whole.window_full,
        )

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate."""
        return self._chat.usage(sent_bytes)


def parse_call(text: str, keys: Container[str], allowed: Container[str]) -> ToolUse | None:
    """Return the call that a text consists of, or None.

    A call is one JSON object with exactly two keys: one of `keys`, holding the name of an allowed tool, and
    `arguments`, an object. The engine assigns its id."""
    found = None if is_too_deep(text) else normalize_object(text)
    if found is None:
        return None
    fields = _decode_fields(found)
    arguments = fields.pop("arguments", b"")
    if not bytes(arguments).startswith(b"{") or len(fields) != 1:
        return None
    [(key, name)] = [(key, msgspec.json.decode(value)) for key, value in fields.items()]
    if key not in keys or not isinstance(name, str) or name not in allowed:
        return None
    return ToolUse("", name, msgspec.json.format(arguments, indent=0).decode())
