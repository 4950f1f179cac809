"""Messages between users, models and tools, and their parts."""

import re
from typing import Literal

from msgspec import Struct

MESSAGE_LIMIT = 128_000
"""Maximum number of characters of one message."""
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")

Role = Literal["user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text", tag_field="kind", gc=False):
    """Plain text."""

    text: str


_BLOCK_TYPES = frozenset({"thinking", "summary_text", "reasoning_text", "reasoning_item"})
"""Values of `Thinking.field` of the formats in which reasoning is a block or an item of its own."""


class Thinking(Struct, frozen=True, tag="thinking", tag_field="kind", omit_defaults=True, gc=False):
    """A model's reasoning. It is sent back only to the provider and model that it came from, and only in the form
    in which it came: with a signature, in the provider's sealed form, or, if it has neither, in its `field`."""

    text: str
    provider: str
    model: str
    signature: str | None = None
    sealed: str | None = None
    """What only the provider can read: redacted thinking, or an encrypted reasoning item."""
    item_id: str | None = None
    """The provider's name for it, if it must be sent back."""
    field: str | None = None
    """Where it came in the reply, and is sent back. In `chat_completions`: the name of a field next to the content,
    or the tag that opened it inside the content, such as `<think>`. In `anthropic_messages`: `thinking`, a block
    without a signature. In `responses`: `summary_text` or `reasoning_text`, the type of its parts; `reasoning_item`
    if it has both, which are in `details`."""
    details: str | None = None
    """The JSON text of its `reasoning_details`, or of the lists of its item, which are sent back unchanged."""

    def is_from(self, provider: str, model: str) -> bool:
        """Return whether it is this model's own, and came in a field of `chat_completions` in which it can be sent
        back."""
        returnable = (self.field is not None or self.details is not None) and self.field not in _BLOCK_TYPES
        return returnable and self.provider == provider and self.model == model

    def is_block_from(self, provider: str, model: str) -> bool:
        """Return whether it is this model's own, and came as a block or an item without a signature or seal."""
        return self.field in _BLOCK_TYPES and self.provider == provider and self.model == model

    def belongs_to(self, provider: str, model: str) -> bool:
        """Return whether it is signed or sealed and may be sent to this model."""
        whole = bool(self.signature) or self.sealed is not None
        return whole and self.provider == provider and self.model == model


class CallExtra(Struct, frozen=True, gc=False):
    """What a provider attached to a call and wants back with it (`extra_content`), such as a thought signature. It
    is sent back only to the provider and model that it came from."""

    provider: str
    model: str
    content: str
    """JSON text, unchanged."""

    def is_from(self, provider: str, model: str) -> bool:
        """Return whether it may be sent to this model."""
        return self.provider == provider and self.model == model


class ToolUse(Struct, frozen=True, tag="tool_use", tag_field="kind", omit_defaults=True, gc=False):
    """A call by the model. `arguments` is the JSON text as the model wrote it."""

    call_id: str
    name: str
    arguments: str
    extra: CallExtra | None = None


class Image(Struct, frozen=True, tag="image", tag_field="kind", gc=False):
    """An image, as base64 text.

    For example:

        from base64 import b64encode

        image = treadle.Image("image/png", b64encode(b"the bytes of a file").decode())
        agent = treadle.Agent(name="helper", model="provider/model-id")
        treadle.Engine("sqlite:///helper.db").run_sync(agent, "What is this?", attachments=[image])
    """

    media_type: str
    data: str


class ToolResult(Struct, frozen=True, tag="tool_result", tag_field="kind", omit_defaults=True, gc=False):
    """The result of a call. Every call has exactly one."""

    call_id: str
    content: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Part = Text | Thinking | ToolUse | ToolResult | Image


Mark = Literal["pinned", "summary"]
"""pinned: no compaction removes it. summary: it replaces other messages."""


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message of a transcript. A `tool` message has the results of the preceding calls, in their order."""

    role: Role
    parts: tuple[Part, ...]
    mark: Mark | None = None
    preface: str = ""
    """Time and place. The model reads it before the text; it is not part of what the user typed."""

    @property
    def text(self) -> str:
        """The plain text of this message."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def sent(self) -> tuple[Part, ...]:
        """The parts as the model reads them, with the preface before the text."""
        if not self.preface:
            return self.parts
        first, *rest = self.parts or (Text(""),)
        if isinstance(first, Text):
            return (Text(f"{self.preface}\n{first.text}"), *rest)
        return (Text(self.preface), first, *rest)

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolUse)])


def make_sendable(text: str) -> str:
    """Return the text without lone surrogates and NUL, which providers reject or cannot decode."""
    if text.isascii() and "\0" not in text:  # nearly always, and nearly free
        return text
    return _UNSENDABLE.sub("\ufffd", text)


def user(text: str, *attachments: Text | Image) -> Message:
    """Return a message from a user, with attachments."""
    return Message("user", (Text(make_sendable(text)), *attachments))
