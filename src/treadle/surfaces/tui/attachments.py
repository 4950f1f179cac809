"""What goes with a message: long pasted texts, images and text files."""

import re
import shlex
from base64 import b64decode
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from treadle.api.agent import IMAGE_TYPES, make_attachment
from treadle.domain.attachments import check_attachment, format_attached_file, measure_base64, parse_attached_file
from treadle.domain.messages import Image, Text
from treadle.operations.attachments import Attachment as SentAttachment
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.item_view import format_size

LONG_PASTE_CHARACTERS = 2_000
LONG_PASTE_LINES = 12
MAX_PATHS_CHARACTERS = 4_000
_DATA_URI = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,")
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


def find_images(text: str, folder: Path) -> list[Path]:
    """Return the images whose paths a pasted text is, as terminals paste dropped files. It is empty if one of them
    is something else."""
    if not text.strip() or len(text) > MAX_PATHS_CHARACTERS:
        return []
    try:
        words = [word for line in text.strip().splitlines() for word in _split_paths(line.strip())]
    except ValueError:
        return []
    found = [find_image(word, folder) for word in words]
    return [path for path in found if path is not None] if None not in found else []


def _split_paths(line: str) -> list[str]:
    return [unquote(urlsplit(line).path)] if line.startswith("file://") else shlex.split(line)


def find_image(name: str, folder: Path) -> Path | None:
    """Return the image of this name."""
    path = Path(name).expanduser()
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


def find_data_image(text: str) -> Image | None:
    """Return the image that a pasted text is the data URI of."""
    line = text.strip()
    if (found := _DATA_URI.match(line)) is None:
        return None
    data = "".join(line[found.end() :].split())
    try:
        b64decode(data, validate=True)
    except ValueError:
        return None
    return Image(found[1], data)


def make_image_chip(image: Image, name: str, max_bytes: int) -> Chip:
    """Return the chip of an image without a file. Raise SizeLimitExceeded if it is too large."""
    size = measure_base64(image.data)
    check_attachment(f"The {name}", size, max_bytes)
    return Chip(texts.ATTACHED_IMAGE.format(name=name, size=format_size(size)), image)


def find_mentioned_images(text: str, folder: Path) -> list[Path]:
    """Return the images that a message names with `@`."""
    found = (find_image(name.strip('"'), folder) for name in _MENTION.findall(text))
    return [path for path in found if path is not None]


def to_sent_attachment(part: Text | Image) -> SentAttachment:
    """Return a part of a message as the API takes it."""
    if isinstance(part, Image):
        return SentAttachment(part.media_type, part.data)
    name, text = parse_attached_file(part.text)
    return SentAttachment(name=name, text=text)
