"""Attachments of messages, as callers send them."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.attachments import format_attached_file
from treadle.domain.errors import UsageError
from treadle.domain.messages import Image, Message, Text

MOST_ATTACHMENTS = 20


class Attachment(Struct, frozen=True, forbid_unknown_fields=True):
    """An image, as base64 text with its media type; or a text file, with its name."""

    media_type: str | None = None
    data: str | None = None
    name: str | None = None
    text: str | None = None


Attachments = Annotated[tuple[Attachment, ...], Meta(max_length=MOST_ATTACHMENTS)]


def make_part(attachment: Attachment) -> Image | Text:
    """Return an attachment as a part of a message. Raises UsageError for one that is neither image nor text."""
    match attachment:
        case Attachment(media_type=str(kind), data=str(data), name=None, text=None) if kind.startswith("image/"):
            try:
                b64decode(data, validate=True)
            except (NotBase64, ValueError):
                raise UsageError("The data of an attached picture is not base64.") from None
            return Image(kind, data)
        case Attachment(media_type=None, data=None, name=str(name), text=str(text)):
            return Text(format_attached_file(name, text))
        case _:
            raise UsageError(
                "An attachment is a picture (media_type image/… and data as base64) or a text file (name and text)."
            )


def make_attachments(message: Message) -> tuple[Attachment, ...]:
    """Return the images of a message as attachments."""
    return tuple(Attachment(part.media_type, part.data) for part in message.parts if isinstance(part, Image))
