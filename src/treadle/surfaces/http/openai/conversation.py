"""Converts the conversation that a client sends into messages for an agent.

Calls of tools that the request offers stay calls. Others become text: the agent has its own tools, and foreign
calls must not look like its calls. System and developer messages are kept separate: they follow the agent's own
instructions and replace none of them."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from treadle.domain.messages import Image, Message, Part, Text, ToolResult, ToolUse, make_sendable
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

DATA_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]+);base64,(.*)", re.DOTALL)
Speaker = Literal["user", "assistant", "instructions"]


class ImageLink(Struct, frozen=True):
    """An image that is fetched before the run starts."""

    url: str
    param: str
    """Where the request names it."""


class MadeCall(Struct, frozen=True):
    """A call of one of the client's tools."""

    call_id: str
    name: str
    arguments: str


class MadeResult(Struct, frozen=True):
    """The result of such a call."""

    call_id: str
    text: str
    images: tuple[Image | ImageLink, ...] = ()


TurnPart = Text | Image | ImageLink | MadeCall | MadeResult


class Turn(Struct, frozen=True):
    """The content of one turn, and who said it."""

    speaker: Speaker
    parts: tuple[TurnPart, ...]

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Text)])


class ClientConversation(Struct, frozen=True):
    """The message to answer, the messages before it, and instructions in addition to the agent's own."""

    before: tuple[Message, ...]
    message: Message
    instructions: str

    def latest(self) -> Message:
        """Return everything the user said since the assistant's last turn as one message, for a session that has
        the rest."""
        since: list[Message] = [self.message]
        for earlier in reversed(self.before):
            if earlier.role != "user":
                break
            since.insert(0, earlier)
        return Message("user", tuple([part for message in since for part in message.parts]))


def build_conversation(turns: Sequence[Turn], param: str, tools: Collection[str] = ()) -> ClientConversation:
    """Return the conversation. Raise InvalidParameterValue if there is nothing to answer."""
    said = [turn for turn in turns if turn.speaker != "instructions" and _has_content(turn)]
    if not said or said[-1].speaker != "user":
        raise InvalidParameterValue(
            param, f"The last item of `{param}` must be a user message: that is what the agent answers."
        )
    groups = [list(group) for _, group in groupby(said, key=lambda turn: turn.speaker)]
    *before, last = _make_messages(groups, tools)
    return ClientConversation(tuple(before), last, read_instructions(turns))


def read_instructions(turns: Sequence[Turn]) -> str:
    """Return the system and developer messages of a request."""
    texts = [turn.text for turn in turns if turn.speaker == "instructions" and turn.text.strip()]
    return make_sendable("\n\n".join(texts))


def find_latest(turns: Sequence[Turn]) -> list[Turn]:
    """Return what came after the last turn of the assistant."""
    last = max((place for place, turn in enumerate(turns) if turn.speaker == "assistant"), default=-1)
    return [turn for turn in turns[last + 1 :] if turn.speaker == "user"]


def read_image(url: str, param: str) -> Image | ImageLink:
    """Return an image that is embedded in the request, or the link to one."""
    if url[:8].lower().startswith(("http://", "https://")):
        return ImageLink(url, param)
    found = DATA_URL.fullmatch(url)
    if found is None:
        raise InvalidParameterValue(
            param, "An image must be a URL of the public internet, or a URL `data:image/…;base64,…`."
        )
    kind, data = found.groups()
    try:
        b64decode(data, validate=True)
    except (NotBase64, ValueError):
        raise InvalidParameterValue(param, "The data of the image is not valid base64.") from None
    return Image(kind, data)


def make_text_parts(text: str) -> tuple[Text, ...]:
    return (Text(make_sendable(text)),) if text else ()


def make_result(call_id: str, parts: Sequence[TurnPart]) -> MadeResult:
    """Return the result of a call with this content."""
    text = "".join([part.text for part in parts if isinstance(part, Text)])
    return MadeResult(call_id, text, tuple([part for part in parts if isinstance(part, Image | ImageLink)]))


def make_message(turn: Turn) -> Message:
    """Return a turn as a message in which calls and results are text."""
    parts: list[Part] = []
    for part in turn.parts:
        match part:
            case MadeCall(_, name, arguments):
                parts.append(Text(make_sendable(f"[Called the client's tool {name} with {arguments}]")))
            case MadeResult(call_id, text, images):
                parts.append(Text(make_sendable(f"[Result of the client's tool call {call_id}]\n{text}")))
                parts += [image for image in images if isinstance(image, Image)]
            case ImageLink():
                pass  # it is fetched by now
            case _:
                parts.append(part)
    if not parts or not isinstance(parts[0], Text):
        parts.insert(0, Text(""))
    return Message("assistant" if turn.speaker == "assistant" else "user", tuple(parts))


def _has_content(turn: Turn) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in turn.parts)


def _make_messages(groups: Sequence[Sequence[Turn]], tools: Collection[str]) -> list[Message]:
    """Return the messages of turns in groups of one speaker. The last group is what the agent answers, as text."""
    messages: list[Message] = []
    kept: dict[str, MadeCall] = {}
    for place, group in enumerate(groups):
        if group[0].speaker == "assistant":
            results = _results_of(groups[place + 1]) if place + 2 < len(groups) else {}
            kept = {
                part.call_id: part
                for turn in group
                for part in turn.parts
                if isinstance(part, MadeCall) and part.name in tools and part.call_id in results
            }
            messages += [_make_calls(group, kept)] if kept else list(map(make_message, group))
            continue
        if kept:
            messages.append(_make_results(kept, _results_of(group)))
        rest = [Turn("user", tuple([part for part in turn.parts if not _is_kept(part, kept)])) for turn in group]
        messages += [make_message(turn) for turn in rest if turn.parts]
        kept = {}
    return messages


def _results_of(group: Sequence[Turn]) -> dict[str, MadeResult]:
    return {part.call_id: part for turn in group for part in turn.parts if isinstance(part, MadeResult)}


def _is_kept(part: TurnPart, kept: dict[str, MadeCall]) -> bool:
    return isinstance(part, MadeResult) and part.call_id in kept


def _make_calls(group: Sequence[Turn], kept: dict[str, MadeCall]) -> Message:
    """Return the turns of the assistant as one message with calls."""
    parts = [part for turn in group for part in turn.parts]
    others = make_message(Turn("assistant", tuple([part for part in parts if part not in kept.values()])))
    calls = [ToolUse(call.call_id, call.name, call.arguments) for call in kept.values()]
    texts = [part for part in others.parts if not isinstance(part, Text) or part.text]
    return Message("assistant", (*texts, *calls))


def _make_results(kept: dict[str, MadeCall], results: dict[str, MadeResult]) -> Message:
    return Message(
        "tool",
        tuple(
            [
                ToolResult(
                    call_id,
                    make_sendable(results[call_id].text),
                    images=tuple([image for image in results[call_id].images if isinstance(image, Image)]),
                )
                for call_id in kept
            ]
        ),
    )
