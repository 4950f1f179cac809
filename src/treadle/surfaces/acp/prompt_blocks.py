"""The content of a prompt as the parts of a message: text, images, files that the editor embeds, and links."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from treadle.domain.attachments import format_attached_file
from treadle.domain.errors import SizeLimitExceeded, UsageError
from treadle.domain.messages import MESSAGE_LIMIT, Image, Message, Text, make_sendable, user

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
MAX_BLOCKS = 500
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class PromptParts(NamedTuple):
    """A prompt: what was typed, and what goes with it."""

    text: str
    attachments: tuple[Text | Image, ...] = ()

    @property
    def whole_text(self) -> str:
        """The text with the attached texts, for what takes only text."""
        return self.text + "".join(part.text for part in self.attachments if isinstance(part, Text))

    @property
    def message(self) -> Message:
        return user(self.text, *self.attachments)


def read_prompt(blocks: Sequence[PromptBlock], folder: Path) -> PromptParts:
    """Return the parts of a prompt. Raise UsageError for content that cannot be sent to a model.

    Links stay where they were in the text, as paths that tools can read. Embedded files follow the text."""
    if len(blocks) > MAX_BLOCKS:
        raise UsageError(f"The prompt has {len(blocks)} blocks; at most {MAX_BLOCKS} are accepted. Attach less.")
    typed: list[str] = []
    attachments: list[Text | Image] = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                typed.append(text)
            case ResourceContentBlock():
                typed.append(f"@{_name_place(block.uri, folder)}")
            case ImageContentBlock(data=data, mime_type=kind):
                attachments.append(_read_image(data, kind))
            case EmbeddedResourceContentBlock(resource=resource):
                attachments.append(_read_resource(resource, folder))
                typed.append(f"@{_name_place(resource.uri, folder)}")
            case AudioContentBlock():
                raise UsageError("Audio is not supported. Send text, images or files.")
    text = make_sendable("".join(_separate(typed)))
    if not text.strip() and not attachments:
        raise UsageError("The prompt is empty. Write what the agent should do.")
    if len(text) > MESSAGE_LIMIT:
        raise SizeLimitExceeded(
            f"The prompt has {len(text)} characters; at most {MESSAGE_LIMIT} are accepted. Save it as a file "
            "in the folder and mention the file."
        )
    return PromptParts(text or "See the attachment.", _replace_oversized(len(text), attachments))


def _separate(pieces: Sequence[str]) -> list[str]:
    """Return the pieces with a space where two would run together."""
    found: list[str] = []
    for piece in pieces:
        if found and piece and (piece.startswith("@") or found[-1].startswith("@")):
            before = found[-1][-1:]
            if not before.isspace() and not piece[0].isspace():
                found.append(" ")
        found.append(piece)
    return found


def _replace_oversized(used: int, attachments: Sequence[Text | Image]) -> tuple[Text | Image, ...]:
    """Return the attachments. A text that does not fit into the message is replaced by a note: tools can read the
    file."""
    fitting: list[Text | Image] = []
    for part in attachments:
        if isinstance(part, Text):
            if used + len(part.text) > MESSAGE_LIMIT:
                head = part.text.partition(":\n")[0]
                part = Text(f"{head} is too long to include ({len(part.text)} characters). Read it with a tool.")
            used += len(part.text)
        fitting.append(part)
    return tuple(fitting)


def _read_resource(resource: TextResourceContents | BlobResourceContents, folder: Path) -> Text | Image:
    place = _name_place(resource.uri, folder)
    if isinstance(resource, TextResourceContents):
        return Text(make_sendable(format_attached_file(place, resource.text)))
    kind = resource.mime_type or ""
    if kind.startswith("image/"):
        return _read_image(resource.blob, kind)
    raise UsageError(f"{place} is neither text nor an image ({kind or 'unknown type'}). Attach a text or an image.")


def _read_image(data: str, kind: str) -> Image:
    if kind not in IMAGES:
        raise UsageError(f"Images of the type `{kind}` are not supported. Use {', '.join(IMAGES)}.")
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("The data of an image is not base64. Attach the image again.") from None
    return Image(kind, data)


def _name_place(uri: str, folder: Path) -> str:
    """Return a file as a path, relative if it is in the folder; anything else as it is."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    place = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    return f"{place}#{parts.fragment}" if parts.fragment else place
