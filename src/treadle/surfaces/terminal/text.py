"""Text of models, tools and other people, made harmless for a terminal.

`inert` is for prose: control characters are shown instead of obeyed, and what languages need stays. `reveal` is
for what a reviewer decides about: every invisible character is shown by its number."""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from shutil import get_terminal_size
from typing import TextIO
from unicodedata import category, east_asian_width

from treadle.domain.graphemes import count_columns, display_width, truncate
from treadle.domain.inert_text import is_joiner

_PICTURES = 0x2400  # where Unicode has the pictures of the control characters: ␛ for ESC
_DELETE = 0x7F
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_KEPT = (ord("\n"), ord("\t"))
TAB = 8

_INERT: dict[int, str] = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if code not in _KEPT},
    _DELETE: "␡",
    **{code: f"<U+{code:04X}>" for code in (*range(0x80, 0xA0), *_BIDI, 0x2028, 0x2029)},
}
_UNSEEN_CATEGORIES = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_UNSEEN = frozenset((
    0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0,  # joiners and fillers that count as letters
    *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0),  # variation selectors
))  # fmt: skip


_HIDING = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
"""Characters without width: they hide text or split words. Tags can spell out whole texts."""
_HIDDEN = re.compile(f"[{_HIDING}]")


def inert(text: str) -> str:
    """Return the text with control characters and changes of direction shown instead of obeyed, and with characters
    without width shown by their numbers. Line breaks, tabs, and joiners of emoji and scripts stay."""
    shown = text.translate(_INERT)
    return shown if shown.isascii() else _HIDDEN.sub(_show_hidden, shown)


def _show_hidden(found: re.Match[str]) -> str:
    is_joined = is_joiner(found.string, found.start())
    return found[0] if is_joined else f"<U+{ord(found[0]):04X}>"


def reveal(text: str) -> str:
    """Return the text inert, with every invisible character shown as <U+200B>. Plain white space stays."""
    return text if text.isascii() and text.isprintable() else "".join(map(_reveal_character, text))


def count_invisible(text: str) -> int:
    """Return how many characters of a text are invisible."""
    return sum(map(is_invisible, text))


@cache
def is_invisible(character: str) -> bool:
    if character in " \n\t":
        return False
    kind = category(character)
    return kind in _UNSEEN_CATEGORIES or kind == "Zs" or ord(character) in _UNSEEN


@cache
def _reveal_character(character: str) -> str:
    return f"<U+{ord(character):04X}>" if is_invisible(character) else character


_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_HIDING}]")


def _escape_in_json(found: re.Match[str]) -> str:
    """Return the escapes of a character: two of them, a surrogate pair, beyond the first 65,536."""
    units = found[0].encode("utf-16-be").hex()
    return "".join([f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)])


def inert_json(line: bytes) -> bytes:
    """Return a line of JSON with the characters escaped that act on a terminal. It decodes to the same value."""
    if line.isascii() and b"\x7f" not in line:
        return line
    text = line.decode("utf-8", "surrogatepass")
    return _UNSAFE_IN_JSON.sub(_escape_in_json, text).encode("utf-8", "surrogatepass")


# ── Lines ──


def one_line(text: str, width: int | None = None) -> str:
    """Return the text inert, on one line, and truncated to a width if one is given."""
    return cut(inert(" ".join(text.split())), width)


def reveal_line(text: str, width: int | None = None) -> str:
    """Return the text on one line, with hidden characters revealed and line breaks as ⏎, truncated to a width."""
    return cut(reveal(text).replace("\n", "⏎").replace("\t", " "), width)


def cut(line: str, width: int | None) -> str:
    """Truncate a line to a number of columns."""
    return line if width is None else truncate(line, width, count_columns)


def pad(line: str, width: int) -> str:
    """Fill a line with spaces to a number of columns."""
    return line + " " * (width - display_width(line))


def pieces(line: str, width: int) -> Iterator[str]:
    """Yield the parts of a line that fit into a width when they are revealed; at least one."""
    begin = used = 0
    for index, character in enumerate(line):
        wide = _columns(character)
        if used + wide > width and index > begin:
            yield line[begin:index]
            begin, used = index, 0
        used += wide
    yield line[begin:]


@cache
def _columns(character: str) -> int:
    """Return the number of columns that a character takes when it is revealed."""
    if character == "\t":
        return TAB
    shown = _reveal_character(character)
    return len(shown) if len(shown) > 1 else 2 if east_asian_width(character) in "WF" else 1


# ── The terminal ──


def columns() -> int:
    """Return the number of columns of the terminal."""
    return get_terminal_size().columns


def measure_terminal(stream: TextIO) -> os.terminal_size:
    """Return the size of the terminal that a stream goes to."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return get_terminal_size()
    return size if size.columns > 0 and size.lines > 0 else get_terminal_size()


def supports_colour(stream: TextIO) -> bool:
    return can_overwrite(stream) and not os.environ.get("NO_COLOR")


def can_overwrite(stream: TextIO) -> bool:
    """Return whether a stream goes to a terminal that can clear a line and write it again."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def is_terminal() -> bool:
    """Return whether notes go to a terminal, which wraps long lines."""
    return sys.stderr.isatty()
