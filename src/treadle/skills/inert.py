"""Text that others wrote, before it stands in a prompt: what changes the direction of writing, or
is there without being seen, is shown by its number."""

_KEPT = (ord("\n"), ord("\t"))
_SHOWN = (
    *(code for code in range(0x20) if code not in _KEPT),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F),
    *range(0x2028, 0x202F),  # separators of lines and paragraphs, embeddings and overrides
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tags: an alphabet that models read and people do not see
    *range(0xE0100, 0xE01F0),  # variations, which can spell out bytes in the same way
)
_INERT = {code: f"<U+{code:04X}>" for code in _SHOWN}


def inert(text: str) -> str:
    """The text with line breaks and tabs as they are, and nothing else in it that acts or hides."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_INERT)


def one_line(text: str) -> str:
    """Inert, with every run of white space as one space."""
    return inert(" ".join(text.split()))
