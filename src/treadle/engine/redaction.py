"""Taking secrets out: of what a model says, while it says it and when it has; and of every event that is kept."""

from typing import Any, Final, cast

import msgspec

from treadle.domain import events as e
from treadle.domain.events import EventData
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.ports.vault import Redactor, TextStream

TEXT_STREAM, REASONING_STREAM = -1, -2
"""The streams of one reply: its text, its reasoning, and each call's arguments by its index."""


_encode = msgspec.json.Encoder().encode


NEVER_SECRET: Final[frozenset[type[EventData]]] = frozenset((
    e.ModelResolved, e.StepStart, e.StepEnd, e.LlmRequest, e.LlmRetry, e.ToolCallStart, e.ToolCallEnd,
    e.ResultTruncated, e.SecretUsed, e.Redacted, e.BreakerOpened, e.BreakerClosed, e.BudgetReserved,
))  # fmt: skip
"""Events whose texts are our own, or have been looked at when they were made."""


def redact_event(data: EventData, redactor: Redactor) -> EventData:
    """The event without secrets, whoever put them into it: the last look before it is kept."""
    if type(data) in NEVER_SECRET or redactor.is_idle or not redactor.redact(_encode(data).decode()).names:
        return data
    return msgspec.convert(redact_value(msgspec.to_builtins(data), redactor), type(data))


def redact_value(value: Any, redactor: Redactor) -> Any:
    """A plain value, and all in it, without secrets."""
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
    """One reply, with the secrets taken out."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[int, TextStream] = {}
        self.names: dict[str, None] = {}

    def piece(self, stream: int, text: str) -> str:
        """What can be shown of this stream now."""
        if stream not in self._streams:
            self._streams[stream] = self._redactor.stream()
        return self._streams[stream].feed(text)

    def rest(self, stream: int) -> str:
        """What was held back of it, now that it has ended."""
        held = self._streams.get(stream)
        return "" if held is None else held.rest()

    def text(self, text: str) -> str:
        redaction = self._redactor.redact(text)
        self.names |= dict.fromkeys(redaction.names)
        return redaction.text

    def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple([kept for part in _join_texts(parts) if (kept := self._part(part)) is not None])

    def arguments(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The arguments of a call without secrets, however they were escaped; and the names of those there were."""
        plain = self._redactor.redact(text)
        try:
            spelled_out = self._redactor.redact(_encode(msgspec.json.decode(text)).decode())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            spelled_out = plain
        found = spelled_out if spelled_out.names else plain
        self.names |= dict.fromkeys(found.names)
        return (found.text, found.names) if found.names else (text, ())

    def _part(self, part: Part) -> Part | None:
        match part:
            case Text(text):
                return Text(self.text(text))
            case ToolUse(extra=extra):  # `arguments` sees to the rest of it
                if extra is None or self.text(extra.content) == extra.content:
                    return part
                return msgspec.structs.replace(part, extra=None)
            case Thinking(text=text, signature=signature, sealed=sealed, details=details):
                hidden = self.text(text)
                has_changed = hidden != text or (details is not None and self.text(details) != details)
                if not has_changed:
                    return part
                if signature is not None or sealed is not None:
                    return None  # it is signed as it was, and would be refused as it is now
                return Thinking(hidden, part.provider, part.model, field=part.field)
            case _:
                return part


def _join_texts(parts: tuple[Part, ...]) -> list[Part]:
    """Texts that follow each other as one: a secret may be cut between them."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(last := joined[-1], Text):
            joined[-1] = Text(last.text + part.text)
        else:
            joined.append(part)
    return joined
