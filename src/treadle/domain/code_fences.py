"""Code blocks of Markdown that a text leaves open."""

import re

from msgspec import Struct

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


class Fence(Struct, frozen=True):
    """The line that opens a code block."""

    marks: str
    info: str
    """The language."""


def find_open_fence(text: str) -> Fence | None:
    """Return the fence of a code block that is not closed, or None."""
    current: Fence | None = None
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is None:
            continue
        marks, info = found[1], found[2].strip()
        if current is None:
            if marks[0] == "~" or "`" not in info:  # else it is inline code
                current = Fence(marks, info)
        elif not info and marks[0] == current.marks[0] and len(marks) >= len(current.marks):
            current = None
    return current


def close_code_block(text: str) -> str:
    """Return a text whose last code block is closed, so that what follows is not part of it."""
    fence = find_open_fence(text)
    return text if fence is None else f"{text.rstrip(chr(10))}\n{fence.marks}"
