"""The text of a file with its encoding, byte order mark and line endings, which a change keeps."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Literal, NamedTuple

Newline = Literal["LF", "CRLF", "mixed"]

_BYTE_ORDER_MARKS = ((BOM_UTF8, "utf-8"), (BOM_UTF16_LE, "utf-16-le"), (BOM_UTF16_BE, "utf-16-be"))
_SNIFFED_BYTES = 8192
"""A NUL in the first bytes shows that a file is not text."""


class FileText(NamedTuple):
    text: str
    encoding: str
    mark: bytes
    """The byte order mark before the text."""

    @property
    def newline(self) -> Newline:
        return find_newline(self.text)

    def encode(self, changed: str) -> bytes:
        """Return another text in the same encoding."""
        return self.mark + changed.encode(self.encoding)


def find_newline(text: str) -> Newline:
    """Return the line endings of a text."""
    with_return = text.count("\r\n")
    if not with_return:
        return "LF"
    return "CRLF" if with_return == text.count("\n") else "mixed"


def decode_text(data: bytes) -> FileText:
    """Decode UTF-8 or the encoding of a byte order mark, else Latin-1, in which every byte is a character and
    round-trips."""
    mark, encoding = next((known for known in _BYTE_ORDER_MARKS if data.startswith(known[0])), (b"", "utf-8"))
    try:
        return FileText(data[len(mark) :].decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        return FileText(data.decode("latin-1"), "latin-1", b"")


def has_binary_bytes(data: bytes) -> bool:
    """Return whether data is not text, judged by its beginning."""
    marked = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    return not marked and b"\0" in data[:_SNIFFED_BYTES]
