"""The shape of a conversation that no provider can reject, kept as it grows.

Rules: no empty messages; no characters that JSON or a provider refuses; a user speaks first; every call has a
unique id and exactly one result, in the order of the calls, right behind them. The journal is never changed:
this is about what is sent."""

from collections.abc import Container, Iterable

from msgspec import structs

from treadle.domain.messages import Message, Part, Text, Thinking, ToolResult, ToolUse, sendable
from treadle.ports.model import Conversation

LOST_RESULT = "No result is on record for this call: interrupted, outcome unknown."
_OPENING = Message("user", (Text("(The conversation begins here.)"),))


class Transcript:
    """A conversation that is valid after every message. Adding one costs the same however long it is."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.messages = self.conversation.messages
        self._ids: set[str] = set()
        self._awaiting: dict[str, str] = {}
        """Calls of the last message that have no result yet: the id they came with -> the id they are sent with."""

    def add(self, message: Message) -> None:
        match message.role:
            case "user":
                self.close()
                self._append("user", _clean(message.parts, Text))
            case "assistant":
                self.close()
                if not self.messages:
                    self.messages.append(_OPENING)
                self._append("assistant", self._with_unique_ids(_clean(message.parts, Text, Thinking, ToolUse)))
            case "tool":
                self._answer(message.parts)

    def close(self) -> None:
        """Give every call that is still open the result that none is on record."""
        if self._awaiting:
            self._answer(())

    def _append(self, role: str, parts: tuple[Part, ...]) -> None:
        if not parts:
            return
        if role == "assistant" and isinstance(parts[-1], Thinking) and all(isinstance(p, Thinking) for p in parts):
            return  # reasoning that led to nothing cannot stand alone
        self.messages.append(Message("user" if role == "user" else "assistant", parts))

    def _with_unique_ids(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple([self._unique(part) if isinstance(part, ToolUse) else part for part in parts])

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
            self.messages.append(Message("tool", tuple(answers)))


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


def _clean(parts: tuple[Part, ...], *kinds: type[Part]) -> tuple[Part, ...]:
    """The parts of these kinds (and pictures), without empty texts."""
    kept: list[Part] = []
    for part in parts:
        match part:
            case Text(text):
                if text.strip():
                    sent = sendable(text)
                    kept.append(part if sent == text else Text(sent))
            case Thinking(text):
                if Thinking in kinds:
                    kept.append(part if sendable(text) == text else structs.replace(part, text=sendable(text)))
            case ToolUse(call_id, name, arguments):
                if ToolUse in kinds:
                    whole = call_id + name + arguments
                    if sendable(whole) != whole:
                        part = ToolUse(sendable(call_id), sendable(name), sendable(arguments))
                    kept.append(part)
            case ToolResult():
                pass
            case _:
                kept.append(part)
    return tuple(kept)
