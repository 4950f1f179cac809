"""Taking secrets out of what a model says, while it says it and when it has."""

from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.ports.vault import Redactor, TextStream

TEXT, REASONING = -1, -2
"""The streams of one reply: its text, its reasoning, and each call's arguments by its index."""


class Hidden:
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
        return tuple([kept for part in parts if (kept := self._part(part)) is not None])

    def _part(self, part: Part) -> Part | None:
        match part:
            case Text(text):
                return Text(self.text(text))
            case ToolUse(call_id, name, arguments):
                return ToolUse(call_id, name, self.text(arguments))
            case Thinking(text=text, signature=signature, sealed=sealed):
                hidden = self.text(text)
                if hidden == text:
                    return part
                if signature is not None or sealed is not None:
                    return None  # it is signed as it was, and would be refused as it is now
                return Thinking(hidden, part.provider, part.model)
            case _:
                return part
