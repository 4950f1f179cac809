"""Redaction of secrets: in a model's reply, while it streams and at its end, and in every event that is stored."""

from typing import Any, Final, cast

import msgspec

from treadle.domain import events as e
from treadle.domain.events import EventData
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.ports.vault import Redactor, TextStream

TEXT_STREAM, REASONING_STREAM = -1, -2
"""The streams of one reply: its text and its reasoning. Each call's arguments have a stream with the call's
index."""


_encode = msgspec.json.Encoder().encode


NEVER_SECRET: Final[frozenset[type[EventData]]] = frozenset((
    e.ModelResolved, e.StepStart, e.StepEnd, e.LlmRequest, e.LlmRetry, e.ToolCallStart, e.ToolCallEnd,
    e.ResultTruncated, e.SecretUsed, e.Redacted, e.BreakerOpened, e.BreakerClosed, e.BudgetReserved,
))  # fmt: skip
"""Events whose texts are the engine's own, or are redacted when they are made."""


def redact_event(data: EventData, redactor: Redactor) -> EventData:
    """Return the event without secrets. This is the last check before it is stored."""
    if type(data) in NEVER_SECRET or redactor.is_idle or not redactor.redact(_encode(data).decode()).names:
        return data
    return msgspec.convert(_without_excerpts(redact_value(msgspec.to_builtins(data), redactor)), type(data))


def _without_excerpts(value: Any) -> Any:
    """Return a plain value without the positions of excerpts, which no longer fit the redacted texts."""
    match value:
        case list():
            return [_without_excerpts(item) for item in cast("list[Any]", value)]
        case dict():
            fields = cast("dict[str, Any]", value)
            return {key: _without_excerpts(item) for key, item in fields.items() if key != "excerpt"}
        case _:
            return value


def redact_value(value: Any, redactor: Redactor) -> Any:
    """Return a plain value without secrets, at any depth."""
    match value:
        case str():
            return redactor.redact(value).text
        case list() | tuple():
            return [redact_value(item, redactor) for item in cast("list[Any]", value)]
        case dict():
            return {key: redact_value(item, redactor) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


class ReplyRedaction:
    """Redacts one reply and collects the names of the secrets in it."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[int, TextStream] = {}
        self.names: dict[str, None] = {}

    def redact_piece(self, stream: int, text: str) -> str:
        """Return what can be shown of this stream now."""
        if stream not in self._streams:
            self._streams[stream] = self._redactor.stream()
        return self._streams[stream].feed(text)

    def flush(self, stream: int) -> str:
        """Return what was held back of this stream, now that it has ended."""
        held = self._streams.get(stream)
        return "" if held is None else held.flush()

    def redact_text(self, text: str) -> str:
        redaction = self._redactor.redact(text)
        self.names |= dict.fromkeys(redaction.names)
        return redaction.text

    def redact_parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple([redacted for part in _join_texts(parts) if (redacted := self._redact_part(part)) is not None])

    def redact_arguments(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the arguments of a call without secrets, however they are escaped, and the names of the
        secrets."""
        plain = self._redactor.redact(text)
        try:
            spelled_out = self._redactor.redact(_encode(msgspec.json.decode(text)).decode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            spelled_out = plain
        found = spelled_out if spelled_out.names else plain
        self.names |= dict.fromkeys(found.names)
        return (found.text, found.names) if found.names else (text, ())

    def _redact_part(self, part: Part) -> Part | None:
        match part:
            case Text(text):
                return Text(self.redact_text(text))
            case ToolUse(extra=extra):  # `redact_arguments` handles the rest
                if extra is None or self.redact_text(extra.content) == extra.content:
                    return part
                return msgspec.structs.replace(part, extra=None)
            case Thinking(text=text, signature=signature, sealed=sealed, details=details):
                hidden = self.redact_text(text)
                has_changed = hidden != text or (details is not None and self.redact_text(details) != details)
                if not has_changed:
                    return part
                if signature or sealed is not None:
                    return None  # the signature would not match the changed text
                return Thinking(hidden, part.provider, part.model, field=part.field)
            case _:
                return part


def _join_texts(parts: tuple[Part, ...]) -> list[Part]:
    """Return the parts with adjacent texts joined: a secret may be split between them."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(last := joined[-1], Text):
            joined[-1] = Text(last.text + part.text)
        else:
            joined.append(part)
    return joined
