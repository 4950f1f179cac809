"""Text that others wrote, made harmless for a terminal: it can be read, and it can do nothing."""

from shutil import get_terminal_size

_PICTURES = 0x2400  # where Unicode has the pictures of the control characters: ␛ for ESC
_DELETE = 0x7F
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_KEPT = (ord("\n"), ord("\t"))

_INERT: dict[int, str] = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if code not in _KEPT},
    _DELETE: "␡",
    **{code: f"<U+{code:04X}>" for code in (*range(0x80, 0xA0), *_BIDI, 0x2028, 0x2029)},
}


def inert(text: str) -> str:
    """The text with every control character and every change of direction shown instead of obeyed; line breaks
    and tabs stay."""
    return text.translate(_INERT)


def one_line(text: str, width: int | None = None) -> str:
    """Inert, on one line, and cut to a width where one is given."""
    line = inert(" ".join(text.split()))
    return line if width is None or len(line) <= width else f"{line[: max(0, width - 1)]}…"


def columns() -> int:
    """How many characters a line of this terminal holds."""
    return get_terminal_size().columns
