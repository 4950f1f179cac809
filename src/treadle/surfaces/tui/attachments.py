"""What goes with a message: long pasted texts, images and text files."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from treadle.api.agent import IMAGE_TYPES, make_attachment
from treadle.domain.attachments import format_attached_file, parse_attached_file
from treadle.domain.messages import Image, Text
from treadle.operations.attachments import Attachment as SentAttachment
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.item_view import format_size

LONG_PASTE_CHARACTERS = 2_000
LONG_PASTE_LINES = 12
_MENTION = re.compile(r"(?:^|(?<=\s))@(\"[^\"\n]+\"|\S+)")


class Chip(NamedTuple):
    """An attachment as it is shown above the message."""

    label: str
    part: Text | Image
    text: str = ""
    """The pasted text, to put it back into the message."""


def is_long(text: str) -> bool:
    """Return whether a pasted text becomes an attachment."""
    return len(text) > LONG_PASTE_CHARACTERS or text.count("\n") >= LONG_PASTE_LINES


def make_paste_chip(text: str, number: int) -> Chip:
    name = texts.PASTE_NAME.format(number=number)
    label = texts.PASTED.format(lines=text.count("\n") + 1, size=format_size(len(text)))
    return Chip(label, Text(format_attached_file(name, text)), text)


def find_image(text: str, folder: Path) -> Path | None:
    """Return the image that a pasted text is the path of, as terminals paste dropped files."""
    line = text.strip()
    if not line or "\n" in line or len(line) > 1000:
        return None
    if line.startswith("file://"):
        line = unquote(urlsplit(line).path)
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if len(words) != 1:
        return None
    path = Path(words[0]).expanduser()
    path = path if path.is_absolute() else folder / path
    try:
        is_image = path.suffix.lower() in IMAGE_TYPES and path.is_file()
    except OSError:
        return None
    return path if is_image else None


def make_file_chip(path: Path, max_bytes: int) -> Chip:
    """Return the chip of an image or a text file. Raise UsageError if it cannot be read or is too large."""
    part = make_attachment(path, max_bytes)
    return Chip(texts.ATTACHED_FILE.format(name=path.name, size=format_size(path.stat().st_size)), part)


def find_mentioned_images(text: str, folder: Path) -> list[Path]:
    """Return the images that a message names with `@`."""
    found = (find_image(name, folder) for name in _MENTION.findall(text))
    return [path for path in found if path is not None]


def to_sent_attachment(part: Text | Image) -> SentAttachment:
    """Return a part of a message as the API takes it."""
    if isinstance(part, Image):
        return SentAttachment(part.media_type, part.data)
    name, text = parse_attached_file(part.text)
    return SentAttachment(name=name, text=text)
