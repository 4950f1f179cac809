"""A reply in the `chat_completions` format whose text holds the calls. How it is read differs by style; what comes
around it, reasoning, usage, errors and the end, is that of any other reply."""

from collections.abc import Container
from typing import Any, Protocol

import msgspec

from treadle.domain.events import StopReason
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.formats.chat_reply import ChatReply
from treadle.models.http.wire import UnusableReply, check_end, compact_object
from treadle.ports.model import CallDelta, Completed, Delta, ModelRequest, ReasoningDelta, Show, TextDelta

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ReplyParser(Protocol):
    """What the text of a reply means."""

    text: list[str]
    """What is for the reader, in pieces. It only ever grows."""
    calls: list[ToolUse]
    """Those that are whole."""

    def feed(self, piece: str) -> None:
        """Read on."""
        ...

    def end(self, said: StopReason) -> None:
        """No more will come, for the reason that the wire format says: read what had to wait for that."""
        ...

    def stop(self) -> StopReason:
        """Why the reply ended. Raises Unusable if that is not how one may end."""
        ...


class EmulatedReply:
    """What has come of one reply so far."""

    def __init__(self, request: ModelRequest, reading: ReplyParser) -> None:
        self.done = False
        self._chat = ChatReply(request)
        self._reading = reading
        self._unread = True
        self._reasoning: list[str] = []
        self._text_shown = 0
        self._calls_shown = 0

    def take(self, payloads: list[bytes]) -> Any:
        """Add chunks, up to one that reports an error: that is returned."""
        error = self._chat.take(payloads)
        self._chat.show_news(self._read)
        if self._unread and self._chat.ending.end is not None:
            self._unread = False
            stop = self._chat.stop
            self._reading.end("end_turn" if stop == "tool_use" else stop)
        self.done = self._chat.done
        return error

    def _read(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._unread = True
            self._reading.feed(delta.text)
        elif isinstance(delta, ReasoningDelta):
            self._reasoning.append(delta.text)

    def show_news(self, show: Show) -> None:
        """Show what has come since the last time: of the text what is for the reader, and calls that are whole."""
        text, calls = self._reading.text, self._reading.calls
        if self._reasoning:
            show(ReasoningDelta("".join(self._reasoning)))
            self._reasoning.clear()
        if len(text) > self._text_shown:
            show(TextDelta("".join(text[self._text_shown :])))
            self._text_shown = len(text)
        for place in range(self._calls_shown, len(calls)):
            show(CallDelta(place, calls[place].name, calls[place].arguments))
        self._calls_shown = len(calls)

    def completed(self, sent_bytes: int) -> Completed:
        """The whole reply. Raises Unusable if it is not whole, or not what was asked for."""
        whole, calls = self._chat.completed(sent_bytes), self._reading.calls
        if whole.dropped_calls or any(isinstance(part, ToolUse) for part in whole.parts):
            raise UnusableReply(
                "it calls a tool natively, which was not asked for; set `tools: native` for this model"
            )
        check_end(self._chat.ending, has_calls=bool(calls))
        stop = self._reading.stop()
        parts: list[Part] = [part for part in whole.parts if isinstance(part, Thinking)]
        if text := "".join(self._reading.text):
            parts.append(Text(text))
        dropped: tuple[str, ...] = ()
        if stop == "tool_use":
            parts.extend(calls)
        else:
            dropped = tuple(call.name for call in calls)
        return Completed(tuple(parts), stop, whole.usage, whole.raw_stop if stop == "other" else None, dropped)

    def usage(self, sent_bytes: int) -> Usage:
        """What the provider counted, or else our estimate."""
        return self._chat.usage(sent_bytes)


def parse_call(text: str, keys: Container[str], allowed: Container[str]) -> ToolUse | None:
    """The call that a text is: one JSON object that has one of `keys`, with the name of an allowed tool, and
    `arguments`, an object. None if it is anything else. Its id is left to the engine."""
    found = compact_object(text)
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
