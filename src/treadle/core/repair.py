"""The shape of a conversation that no provider can reject, kept as it grows.

Rules: no empty messages; no characters that JSON or a provider refuses; a user speaks first; every call has a
unique id and exactly one result, in the order of the calls, right behind them. The journal is never changed:
this is about what is sent."""

from collections.abc import Container, Iterable

from msgspec import structs

from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, sendable
from treadle.ports.model import Conversation

LOST_RESULT = "No result is on record for this call: interrupted, outcome unknown."
_FRAME = 16  # characters around a message or a call
_IMAGE = 6000  # characters: what a picture counts for, whatever its size
_OPENING = Message("user", (Text("(The conversation begins here.)"),))


class Transcript:
    """A conversation that is valid after every message. Adding one costs the same however long it is."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.messages = self.conversation.messages
        self.characters = 0
        """How long all of it is, roughly as it is sent."""
        self._ids: set[str] = set()
        self._awaiting: dict[str, str] = {}
        """Calls of the last message that have no result yet: the id they came with -> the id they are sent with."""

    def add(self, message: Message) -> None:
        if message.role == "tool":
            self._answer(message.parts)
            return
        self.close()
        parts = self._said(message.parts) if message.role == "assistant" else _told(message.parts)
        if parts:
            if message.role == "assistant" and not self.messages:
                self._keep(_OPENING)
            self._keep(Message(message.role, tuple(parts)))

    def close(self) -> None:
        """Give every call that is still open the result that none is on record."""
        if self._awaiting:
            self._answer(())

    def _said(self, parts: Iterable[Part]) -> list[Part]:
        """What an assistant said. Reasoning that led to nothing cannot stand alone."""
        kept: list[Part] = []
        alone = True
        for part in parts:
            clean = None if isinstance(part, ToolResult) else _clean(part)
            if clean is not None:
                if isinstance(clean, ToolUse):
                    clean = self._unique(clean)
                alone = alone and isinstance(clean, Thinking)
                kept.append(clean)
        return [] if alone else kept

    def _unique(self, use: ToolUse) -> ToolUse:
        wanted = use.call_id or "call"
        sent = _free(wanted, self._ids)
        self._ids.add(sent)
        asked = _free(use.call_id, self._awaiting)
        self._awaiting[asked] = sent
        return use if sent == use.call_id else ToolUse(sent, use.name, use.arguments)

    def _answer(self, parts: Iterable[Part]) -> None:
        results: dict[str, ToolResult] = {}
        for part in parts:
            if isinstance(part, ToolResult):
                results[_free(sendable(part.call_id), results)] = part
        answers: list[Part] = []
        for asked, sent in self._awaiting.items():
            found = results.get(asked)
            if found is None:
                answers.append(ToolResult(sent, LOST_RESULT, is_error=True))
            else:
                answers.append(ToolResult(sent, sendable(found.content), found.is_error))
        self._awaiting = {}
        if answers:
            self._keep(Message("tool", tuple(answers)))

    def _keep(self, message: Message) -> None:
        self.messages.append(message)
        self.characters += characters(message)


def characters(message: Message) -> int:
    """How long a message is, roughly as it is sent: what an estimate of its tokens can go by."""
    length = _FRAME
    for part in message.parts:
        if isinstance(part, Text):
            length += len(part.text)
        elif isinstance(part, ToolResult):
            length += len(part.content) + _FRAME
        elif isinstance(part, ToolUse):
            length += len(part.name) + len(part.arguments) + _FRAME
        else:
            length += _IMAGE if isinstance(part, Image) else len(part.text)
    return length


def repair(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages in a shape that no provider rejects. Repairing twice changes nothing more."""
    transcript = Transcript()
    for message in messages:
        transcript.add(message)
    transcript.close()
    return tuple(transcript.messages)


def unique_call_ids(parts: tuple[Part, ...], taken: set[str], prefix: str) -> tuple[Part, ...]:
    """The parts of a reply with a call id that is new to the run for every call, as it came where it can be."""
    used: set[str] = set()
    unique: list[Part] = []
    for index, part in enumerate(parts):
        if isinstance(part, ToolUse):
            wanted = part.call_id or f"{prefix}_{index}"
            call_id = _free(wanted, taken, used)
            used.add(call_id)
            part = part if call_id == part.call_id else ToolUse(call_id, part.name, part.arguments)
        unique.append(part)
    return tuple(unique)


def _free(name: str, taken: Container[str], also_taken: Container[str] = ()) -> str:
    """The name, or the first of its numbered variants, that is not taken."""
    candidate, number = name, 1
    while candidate in taken or candidate in also_taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _told(parts: Iterable[Part]) -> list[Part]:
    """What a user said: words and pictures."""
    kept = [_clean(part) for part in parts if isinstance(part, Text | Image)]
    return [part for part in kept if part is not None]


def _clean(part: Part) -> Part | None:
    """The part as it can be sent: without characters that cannot be. None for words that say nothing."""
    if isinstance(part, Text):
        if not part.text or part.text.isspace():
            return None
        sent = sendable(part.text)
        return part if sent == part.text else Text(sent)
    if isinstance(part, ToolUse):
        whole = part.call_id + part.name + part.arguments
        if sendable(whole) == whole:
            return part
        return ToolUse(sendable(part.call_id), sendable(part.name), sendable(part.arguments))
    if isinstance(part, Thinking):
        sent = sendable(part.text)
        if sent != part.text:  # what was signed cannot be changed
            return None if part.signature or part.sealed else structs.replace(part, text=sent)
    return part
