"""Reads the text of a file."""

import os

from treadle.domain.edits.file_text import FileText, decode_text, has_binary_bytes
from treadle.ports.tool import ToolError
from treadle.tools.files.name_display import display_name

MAX_BYTES = 32_000_000
"""Limit for a file that is read completely."""
_MAGIC_BYTES = (
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "a program (ELF)"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"wOFF", "a font"),
    (b"wOF2", "a font"),
)


def read_text(descriptor: int, path: str) -> FileText:
    """Return the text of an open file. Raise ToolError if it is not text or too large."""
    size = os.fstat(descriptor).st_size
    data = read_bytes(descriptor, MAX_BYTES + 1)
    if not_text := find_binary_kind(data):
        raise ToolError(
            f"{display_name(path)} is {not_text} ({size:,} bytes), not text. Use a program that reads it, if there "
            "is one."
        )
    if len(data) > MAX_BYTES:
        raise ToolError(
            f"{display_name(path)} is {size:,} bytes large; at most {MAX_BYTES:,} can be read as a whole. Use grep "
            "to "
            "find a place in it, or a command that reads a part."
        )
    return decode_text(data)


def read_bytes(descriptor: int, most: int) -> bytes:
    """Read from the current position, at most `most` bytes."""
    pieces: list[bytes] = []
    while most > 0 and (piece := os.read(descriptor, min(most, 1 << 20))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def find_binary_kind(data: bytes) -> str | None:
    """Return what kind of binary data it is, or None if it is text."""
    for start, kind in _MAGIC_BYTES:
        if data.startswith(start):
            return kind
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "a WebP image"
    return "binary data" if has_binary_bytes(data) else None
