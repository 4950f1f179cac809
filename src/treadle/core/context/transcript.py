"""A transcript in a form that no provider rejects, kept valid as it grows.

Rules: no empty messages; no characters that JSON or a provider rejects; a user message comes first; every call has
a unique ID and exactly one result, in the order of the calls, directly after them. The journal is never changed:
this concerns only what is sent."""

from collections.abc import Callable, Iterable

from msgspec import structs

from treadle.core.context.memory_prompt import list_recalled_lines
from treadle.core.context.tokens import estimate_message
from treadle.domain.limits import MAX_CALL_ID_CHARACTERS
from treadle.domain.messages import Image, Message, Part, Text, Thinking, ToolResult, ToolUse, make_sendable
from treadle.ports.model import Conversation

LOST_RESULT = "No result is on record for this call: interrupted, outcome unknown."
_OPENING = Message("user", (Text("(The conversation begins here.)"),))


class Transcript:
    """A transcript that is valid after every message. The cost of adding one does not depend on its length."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.messages = self.conversation.messages
        self.sizes: list[int] = []
        """Estimated tokens of each message."""
        self.tokens = 0
        """Estimated tokens of all messages."""
        self.image_characters = 0
        """Characters of all images."""
        self.recalled: set[str] = set()
        """The lines of recalled memory that it shows."""
        self._ids: set[str] = set()
        self._awaiting: dict[str, str] = {}
        """Calls of the last message that have no result yet: the ID they came with -> the ID they are sent with."""

    def add(self, message: Message) -> None:
        if message.role == "tool":
            self._add_results(message.parts)
            return
        self.close()
        parts = (
            self._clean_reply(message.parts) if message.role == "assistant" else _clean_user_parts(message.parts)
        )
        if parts:
            if message.role == "assistant" and not self.messages:
                self._append(_OPENING)
            self._append(Message(message.role, tuple(parts), message.mark, message.preface))

    def has_call(self, call_id: str) -> bool:
        return call_id in self._ids

    def close(self) -> None:
        """Give every open call a result that says that none is on record."""
        if self._awaiting:
            self._add_results(())

    def _clean_reply(self, parts: Iterable[Part]) -> list[Part]:
        """Return the parts of an assistant message that can be sent. Reasoning alone is dropped."""
        kept: list[Part] = []
        only_reasoning = True
        for part in parts:
            clean = None if isinstance(part, ToolResult) else _clean(part)
            if clean is not None:
                if isinstance(clean, ToolUse):
                    clean = self._assign_id(clean)
                only_reasoning = only_reasoning and isinstance(clean, Thinking)
                kept.append(clean)
        return [] if only_reasoning else kept

    def _assign_id(self, use: ToolUse) -> ToolUse:
        wanted = use.call_id or "call"
        sent_id = _find_free_name(wanted, self._ids.__contains__)
        self._ids.add(sent_id)
        original_id = _find_free_name(use.call_id, self._awaiting.__contains__)
        self._awaiting[original_id] = sent_id
        return use if sent_id == use.call_id else structs.replace(use, call_id=sent_id)

    def _add_results(self, parts: Iterable[Part]) -> None:
        results: dict[str, ToolResult] = {}
        for part in parts:
            if isinstance(part, ToolResult):
                results[_find_free_name(make_sendable(part.call_id), results.__contains__)] = part
        answers: list[Part] = []
        for original_id, sent_id in self._awaiting.items():
            found = results.get(original_id)
            if found is None:
                answers.append(ToolResult(sent_id, LOST_RESULT, is_error=True))
            else:
                answers.append(ToolResult(sent_id, make_sendable(found.content), found.is_error, found.images))
                self.image_characters += sum([len(image.data) for image in found.images])
        self._awaiting = {}
        if answers:
            self._append(Message("tool", tuple(answers)))

    def _append(self, message: Message) -> None:
        size = estimate_message(message)
        self.messages.append(message)
        self.sizes.append(size)
        self.tokens += size
        if message.role == "user":
            for part in message.parts:
                if isinstance(part, Text):
                    self.recalled.update(list_recalled_lines(part.text))
                elif isinstance(part, Image):
                    self.image_characters += len(part.data)


def repair(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages in a form that no provider rejects. The function is idempotent."""
    return tuple(make_transcript(messages).messages)


def make_transcript(messages: Iterable[Message]) -> Transcript:
    """Return a transcript of these messages, with all calls answered."""
    transcript = Transcript()
    for message in messages:
        transcript.add(message)
    transcript.close()
    return transcript


def remove_unsigned_thinking(message: Message, provider: str, model: str) -> Message:
    """Return the message without the thinking of this model that has no signature or seal."""
    if message.role != "assistant":
        return message
    kept = tuple([part for part in message.parts if not _is_unsigned_thinking(part, provider, model)])
    return message if len(kept) == len(message.parts) else structs.replace(message, parts=kept)


def _is_unsigned_thinking(part: Part, provider: str, model: str) -> bool:
    return (
        isinstance(part, Thinking)
        and (part.is_from(provider, model) or part.is_block_from(provider, model))
        and not part.belongs_to(provider, model)
    )


def make_call_ids_unique(parts: tuple[Part, ...], taken: Callable[[str], bool], prefix: str) -> tuple[Part, ...]:
    """Return the parts of a reply with call IDs that are new to the run, changed only where necessary."""
    used: set[str] = set()
    unique: list[Part] = []
    for index, part in enumerate(parts):
        if isinstance(part, ToolUse):
            is_long = len(part.call_id) > MAX_CALL_ID_CHARACTERS
            wanted = f"{prefix}_{index}" if is_long or not part.call_id else part.call_id
            call_id = _find_free_name(wanted, lambda name: name in used or taken(name))
            used.add(call_id)
            part = part if call_id == part.call_id else structs.replace(part, call_id=call_id)
        unique.append(part)
    return tuple(unique)


def _find_free_name(name: str, taken: Callable[[str], bool]) -> str:
    """Return the name, or the first of its numbered variants that is free."""
    candidate, number = name, 1
    while taken(candidate):
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _clean_user_parts(parts: Iterable[Part]) -> list[Part]:
    """Return the text and images of a user message."""
    kept = [_clean(part) for part in parts if isinstance(part, Text | Image)]
    return [part for part in kept if part is not None]


def _clean(part: Part) -> Part | None:
    """Return the part without characters that cannot be sent, or None for empty text."""
    if isinstance(part, Text):
        if not part.text or part.text.isspace():
            return None
        sent_id = make_sendable(part.text)
        return part if sent_id == part.text else Text(sent_id)
    if isinstance(part, ToolUse):
        whole = part.call_id + part.name + part.arguments
        if make_sendable(whole) == whole:
            return part
        call_id, name, arguments = (
            make_sendable(part.call_id),
            make_sendable(part.name),
            make_sendable(part.arguments),
        )
        return structs.replace(part, call_id=call_id, name=name, arguments=arguments)
    if isinstance(part, Thinking):
        sent_id = make_sendable(part.text)
        if sent_id != part.text:  # signed reasoning must not change
            return None if part.signature or part.sealed else structs.replace(part, text=sent_id)
    return part
