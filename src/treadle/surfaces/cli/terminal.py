"""Text that others wrote, made harmless for a terminal: it can be read, and it can do nothing.

`inert` is for prose: what a terminal would obey is shown, and what languages need is left alone. `revealed` is for
what somebody decides about: there every character that is not seen is shown by its number."""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from math import floor, isfinite, log10
from shutil import get_terminal_size
from typing import Any, TextIO
from unicodedata import category, east_asian_width

import msgspec

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


def inert(text: str) -> str:
    """The text with every control character and every change of direction shown instead of obeyed; line breaks
    and tabs stay."""
    return text.translate(_INERT)


def revealed(text: str) -> str:
    """Inert, and with every character that is not seen as what it is: <U+200B>. Plain spaces, tabs and line breaks
    stay."""
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def unseen(text: str) -> int:
    """How many characters of a text are not seen."""
    return sum(map(is_unseen, text))


@cache
def is_unseen(character: str) -> bool:
    if character in " \n\t":
        return False
    kind = category(character)
    return kind in _UNSEEN_CATEGORIES or kind == "Zs" or ord(character) in _UNSEEN


@cache
def _shown(character: str) -> str:
    return f"<U+{ord(character):04X}>" if is_unseen(character) else character


_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def inert_json(line: bytes) -> bytes:
    """A line of JSON in which no character acts on a terminal: they are escaped, so it stays the same value."""
    if line.isascii() and b"\x7f" not in line:
        return line
    text = line.decode("utf-8", "surrogatepass")
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8", "surrogatepass")


def print_json(value: Any) -> None:
    """One value on a line of standard output."""
    print_json_line(msgspec.json.encode(value))


def print_json_line(line: bytes) -> None:
    sys.stdout.buffer.write(inert_json(line) + b"\n")


# ── Lines ──


def one_line(text: str, width: int | None = None) -> str:
    """Inert, on one line, and cut to a width where one is given."""
    return cut(inert(" ".join(text.split())), width)


def revealed_line(text: str, width: int | None = None) -> str:
    """Revealed, on one line with its line breaks as ⏎, and cut to a width where one is given."""
    return cut(revealed(text).replace("\n", "⏎").replace("\t", " "), width)


def cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: max(0, width - 1)]}…"


def pieces(line: str, width: int) -> Iterator[str]:
    """The parts of a line that each fit into a width when they are revealed; at least one."""
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
    """At most so many columns does a character take."""
    if character == "\t":
        return TAB
    shown = _shown(character)
    return len(shown) if len(shown) > 1 else 2 if east_asian_width(character) in "WF" else 1


def amount(value: float) -> str:
    """Return an amount of money rounded for people: two decimals, and two digits of what is less than a cent."""
    if value <= 0 or not isfinite(value):
        return f"{value:.2f}"
    return f"{value:,.{min(8, max(2, 1 - floor(log10(value))))}f}"


# ── The terminal ──


def columns() -> int:
    """How many characters a line of this terminal holds."""
    return get_terminal_size().columns


def size_of(stream: TextIO) -> os.terminal_size:
    """The columns and lines of the terminal that a stream goes to."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return get_terminal_size()
    return size if size.columns > 0 and size.lines > 0 else get_terminal_size()


def likes_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal() -> bool:
    """Whether notes go to a terminal, which wraps long lines."""
    return sys.stderr.isatty()
