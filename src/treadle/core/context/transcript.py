"""The shape of a conversation that no provider can reject, kept as it grows.

Rules: no empty messages; no characters that JSON or a provider refuses; a user speaks first; every call has a
unique id and exactly one result, in the order of the calls, right behind them. The journal is never changed:
this is about what is sent."""

from collections.abc import Callable, Iterable

from msgspec import structs

from treadle.core.context.memory_prompt import recalled_lines
from treadle.core.context.tokens import estimate_message
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, sendable
from treadle.ports.model import Conversation

LOST_RESULT = "No result is on record for this call: interrupted, outcome unknown."
_OPENING = Message("user", (Text("(The conversation begins here.)"),))


class Transcript:
    """A conversation that is valid after every message. Adding one costs the same however long it is."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.messages = self.conversation.messages
        self.sizes: list[int] = []
        """A guess at the tokens of each message."""
        self.tokens = 0
        """Of all of them."""
        self.pictures = 0
        """Characters of the pictures in them."""
        self.recalled: set[str] = set()
        """The lines of memory that it shows."""
        self._ids: set[str] = set()
        self._awaiting: dict[str, str] = {}
        """Calls of the last message that have no result yet: the id they came with -> the id they are sent with."""

    def add(self, message: Message) -> None:
        if message.role == "tool":
            self._answer(message.parts)
            return
        self.close()
        parts = self._said(message.parts) if message.role == "assistant" else _clean_user_parts(message.parts)
        if parts:
            if message.role == "assistant" and not self.messages:
                self._keep(_OPENING)
            self._keep(Message(message.role, tuple(parts), message.mark, message.preface))

    def has_call(self, call_id: str) -> bool:
        return call_id in self._ids

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
        sent = _find_free_name(wanted, self._ids.__contains__)
        self._ids.add(sent)
        asked = _find_free_name(use.call_id, self._awaiting.__contains__)
        self._awaiting[asked] = sent
        return use if sent == use.call_id else structs.replace(use, call_id=sent)

    def _answer(self, parts: Iterable[Part]) -> None:
        results: dict[str, ToolResult] = {}
        for part in parts:
            if isinstance(part, ToolResult):
                results[_find_free_name(sendable(part.call_id), results.__contains__)] = part
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
        size = estimate_message(message)
        self.messages.append(message)
        self.sizes.append(size)
        self.tokens += size
        if message.role == "user":
            for part in message.parts:
                if isinstance(part, Text):
                    self.recalled.update(recalled_lines(part.text))
                elif isinstance(part, Image):
                    self.pictures += len(part.data)


def repair(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages in a shape that no provider rejects. Repairing twice changes nothing more."""
    return tuple(make_transcript(messages).messages)


def make_transcript(messages: Iterable[Message]) -> Transcript:
    """A conversation of these messages, with all of its calls answered."""
    transcript = Transcript()
    for message in messages:
        transcript.add(message)
    transcript.close()
    return transcript


def make_call_ids_unique(parts: tuple[Part, ...], taken: Callable[[str], bool], prefix: str) -> tuple[Part, ...]:
    """The parts of a reply with a call id that is new to the run for every call, as it came where it can be."""
    used: set[str] = set()
    unique: list[Part] = []
    for index, part in enumerate(parts):
        if isinstance(part, ToolUse):
            wanted = part.call_id or f"{prefix}_{index}"
            call_id = _find_free_name(wanted, lambda name: name in used or taken(name))
            used.add(call_id)
            part = part if call_id == part.call_id else structs.replace(part, call_id=call_id)
        unique.append(part)
    return tuple(unique)


def _find_free_name(name: str, taken: Callable[[str], bool]) -> str:
    """The name, or the first of its numbered variants, that is not taken."""
    candidate, number = name, 1
    while taken(candidate):
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _clean_user_parts(parts: Iterable[Part]) -> list[Part]:
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
        call_id, name, arguments = sendable(part.call_id), sendable(part.name), sendable(part.arguments)
        return structs.replace(part, call_id=call_id, name=name, arguments=arguments)
    if isinstance(part, Thinking):
        sent = sendable(part.text)
        if sent != part.text:  # what was signed cannot be changed
            return None if part.signature or part.sealed else structs.replace(part, text=sent)
    return part
