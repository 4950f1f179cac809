"""The conversation that a client sends, as an agent is shown it.

What the client's own tools did is told as text: the agent has tools of its own, and what is none of its calls must
not look like one. What stands there as the system's or the developer's word is kept apart: it is told after the
agent's own instructions, and replaces none of them."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from treadle.domain.messages import Image, Message, Text, make_sendable
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

DATA_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]+);base64,(.*)", re.DOTALL)
TurnPart = Text | Image
Speaker = Literal["user", "assistant", "instructions"]


class Turn(Struct, frozen=True):
    """What one of those who speak has said."""

    speaker: Speaker
    parts: tuple[TurnPart, ...]

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Text)])


class Conversation(Struct, frozen=True):
    """What is asked, what was said before it, and what the agent is told beside its own instructions."""

    before: tuple[Message, ...]
    message: Message
    instructions: str

    def latest(self) -> Message:
        """What the user has said since the assistant spoke last, as one message: where the session has the rest."""
        since: list[Message] = [self.message]
        for earlier in reversed(self.before):
            if earlier.role != "user":
                break
            since.insert(0, earlier)
        return Message("user", tuple([part for message in since for part in message.parts]))


def build_conversation(turns: Sequence[Turn], param: str) -> Conversation:
    """Raises `Wrong` where there is nothing to be answered."""
    told = "\n\n".join(turn.text for turn in turns if turn.speaker == "instructions" and turn.text.strip())
    spoken = [turn for turn in turns if turn.speaker != "instructions" and _has_content(turn)]
    if not spoken or spoken[-1].speaker != "user":
        raise InvalidParameterValue(
            param, f"The last of `{param}` must be what the user says: that is what the agent answers."
        )
    *before, last = map(_make_message, spoken)
    return Conversation(tuple(before), last, make_sendable(told))


def read_image(url: str, param: str) -> Image:
    """A picture that comes with the request."""
    found = DATA_URL.fullmatch(url)
    if found is None:
        raise InvalidParameterValue(
            param,
            "A picture must come with the request, as a URL `data:image/…;base64,…`; others are not fetched from "
            "here.",
        )
    kind, data = found.groups()
    try:
        b64decode(data, validate=True)
    except (NotBase64, ValueError):
        raise InvalidParameterValue(param, "The data of the picture is not base64.") from None
    return Image(kind, data)


def make_text_parts(text: str) -> tuple[Text, ...]:
    return (Text(make_sendable(text)),) if text else ()


def describe_client_call(name: str, arguments: str) -> Text:
    """That the assistant called a tool of the client's."""
    return Text(make_sendable(f"[Called the client's tool {name} with {arguments}]"))


def describe_client_result(call_id: str, result: str) -> Text:
    """What came of it."""
    return Text(make_sendable(f"[Result of the client's tool call {call_id}]\n{result}"))


def _has_content(turn: Turn) -> bool:
    return any(isinstance(part, Image) or part.text.strip() for part in turn.parts)


def _make_message(turn: Turn) -> Message:
    parts = turn.parts if isinstance(turn.parts[0], Text) else (Text(""), *turn.parts)
    return Message("assistant" if turn.speaker == "assistant" else "user", parts)
