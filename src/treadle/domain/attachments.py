"""Attachments: their size limit, and the format in which a message holds the text files that are attached to it.
Models read that format, and it is stored."""

from collections.abc import Iterable

from treadle.domain.errors import SizeLimitExceeded
from treadle.domain.messages import Image, Part, Text

_OPENING = "\n\nAttached file "
_NAME_END = ":\n"


def format_attached_file(name: str, text: str) -> str:
    """Return a text file as a part of a message."""
    return f"{_OPENING}{name}{_NAME_END}{text}"


def parse_attached_file(part: str) -> tuple[str, str]:
    """Return the name and the text of a file that is a part of a message."""
    head, _, text = part.partition(_NAME_END)
    return head.removeprefix(_OPENING), text


def strip_attached_files(message: str) -> str:
    """Return a message without the text files that follow it."""
    return message.partition(_OPENING)[0]


def check_attachment(name: str, size: int, max_bytes: int) -> None:
    """Raise SizeLimitExceeded if an attachment has too many bytes. Every surface calls this before it reads or
    decodes one."""
    if size > max_bytes:
        raise SizeLimitExceeded(
            f"{name} has {size:,} bytes: at most {max_bytes:,} are accepted. Attach a smaller one, or raise "
            "`limits.max_attachment_bytes` of the agent."
        )


def check_attached_parts(parts: Iterable[Part], max_bytes: int) -> None:
    """Raise SizeLimitExceeded if a part of a message is an attachment that is too large."""
    for part in parts:
        if isinstance(part, Image):
            check_attachment("An attached image", measure_base64(part.data), max_bytes)
        elif isinstance(part, Text) and part.text.startswith(_OPENING):
            check_attachment("An attached file", len(part.text), max_bytes)


def measure_base64(data: str) -> int:
    """Return the number of bytes that base64 text stands for, without decoding it."""
    return len(data) * 3 // 4 - data[-2:].count("=")
