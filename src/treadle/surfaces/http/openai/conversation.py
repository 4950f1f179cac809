"""Converts the conversation that a client sends into messages for an agent.

Calls of the client's own tools become text: the agent has its own tools, and foreign calls must not look like its
calls. System and developer messages are kept separate: they follow the agent's own instructions and replace none
of them."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from treadle.domain.messages import Image, Message, Text, make_sendable
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

DATA_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]+);base64,(.*)", re.DOTALL)
Speaker = Literal["user", "assistant", "instructions"]


class ImageLink(Struct, frozen=True):
    """An image that is fetched before the run starts."""

    url: str
    param: str
    """Where the request names it."""


TurnPart = Text | Image | ImageLink


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


def build_conversation(turns: Sequence[Turn], param: str) -> ClientConversation:
    """Return the conversation. Raise InvalidParameterValue if there is nothing to answer."""
    instructions = "\n\n".join(turn.text for turn in turns if turn.speaker == "instructions" and turn.text.strip())
    said = [turn for turn in turns if turn.speaker != "instructions" and _has_content(turn)]
    if not said or said[-1].speaker != "user":
        raise InvalidParameterValue(
            param, f"The last item of `{param}` must be a user message: that is what the agent answers."
        )
    *before, last = map(_make_message, said)
    return ClientConversation(tuple(before), last, make_sendable(instructions))


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


def describe_client_call(name: str, arguments: str) -> Text:
    """Return the text for a call of one of the client's tools."""
    return Text(make_sendable(f"[Called the client's tool {name} with {arguments}]"))


def describe_client_result(call_id: str, result: str) -> Text:
    """Return the text for the result of such a call."""
    return Text(make_sendable(f"[Result of the client's tool call {call_id}]\n{result}"))


def _has_content(turn: Turn) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in turn.parts)


def _make_message(turn: Turn) -> Message:
    parts = tuple([part for part in turn.parts if not isinstance(part, ImageLink)])  # they are fetched by now
    parts = parts if isinstance(parts[0], Text) else (Text(""), *parts)
    return Message("assistant" if turn.speaker == "assistant" else "user", parts)
