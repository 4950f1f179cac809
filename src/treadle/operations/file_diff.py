"""The difference of two contents of a file, as a unified diff."""

from difflib import unified_diff
from itertools import islice

from msgspec import Struct

from treadle.domain.edits.file_text import decode_text, has_binary_bytes

CONTEXT_LINES = 3
MAX_COMPARED_BYTES = 1_000_000
"""Larger files are not compared."""
MAX_DIFF_LINES = 2_000
"""Lines of a diff. The rest is left out, and counted."""


class FileDiff(Struct, frozen=True):
    """Empty: the contents cannot be compared."""

    text: str | None = None
    added: int | None = None
    removed: int | None = None


def compare_contents(before: bytes, after: bytes) -> FileDiff:
    """Return the difference. A last line without a line break is marked, as diffs do."""
    if max(len(before), len(after)) > MAX_COMPARED_BYTES or has_binary_bytes(before) or has_binary_bytes(after):
        return FileDiff()
    old, new = (_split_lines(decode_text(data).text) for data in (before, after))
    lines: list[str] = []
    for line in islice(unified_diff(old, new, lineterm="", n=CONTEXT_LINES), 2, None):  # without the names of files
        lines.append(line.removesuffix("\n"))
        if not line.startswith("@@") and not line.endswith("\n"):
            lines.append("\\ No newline at end of file")
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    if len(lines) > MAX_DIFF_LINES:
        lines = [*lines[:MAX_DIFF_LINES], f"\\ {len(lines) - MAX_DIFF_LINES:,} more lines"]
    return FileDiff("\n".join(lines), added, removed)


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text with their line breaks."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
