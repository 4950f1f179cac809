"""Suggests why a text was not found in a file."""

import re
from difflib import SequenceMatcher

_NUMBERED = re.compile(r"\s*\d+\t")
_SPACES = re.compile(r"\s+")
_MIN_RATIO = 0.6
_MAX_LINE_CHARACTERS = 200
"""How much of a line is compared."""
_MAX_COMPARISONS = 2_000_000
"""In characters, about half a second of work; a hostile file could otherwise take minutes. A count, unlike a time,
gives the same result on a busy machine."""
_LINE_COMPARISONS = 8
"""The cost of a line whose length differs too much to be compared."""
_MAX_SHOWN_LINES = 6


def explain_not_found(text: str, old: str, new: str) -> str:
    wanted = old.splitlines() or [old]
    lines = text.splitlines()
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        return "It begins with the line numbers of read_file: leave them out."
    if (at := _find_ignoring_spaces(lines, wanted)) is not None:
        return f"The same text with other spaces is at line {at + 1}:\n{_quote_lines(lines, at, len(wanted))}\n"
    if new.strip() and new in text:
        line = text.count("\n", 0, text.find(new)) + 1
        return f"But `new` is in the file already, at line {line}: the change may have been made before."
    if (at := _find_nearest(lines, wanted)) is not None:
        return f"The nearest text is at line {at + 1}:\n{_quote_lines(lines, at, len(wanted))}\nCopy it exactly."
    return "Nothing like it is in the file. Read the file again."


def _find_ignoring_spaces(lines: list[str], wanted: list[str]) -> int | None:
    """Return the line of the same text with other spaces."""
    words = _strip_spaces(wanted)
    if not words.strip():
        return None
    found = _strip_spaces(lines)
    at = found.find(words)
    return None if at < 0 else found.count("\n", 0, at)


def _strip_spaces(lines: list[str]) -> str:
    """Return the lines without spaces, each between two newlines."""
    return "\n".join(["", *[_SPACES.sub("", line) for line in lines], ""])


def _find_nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Return the line most similar to the first of the wanted lines."""
    offset, sought = max(enumerate(wanted), key=lambda numbered: (bool(numbered[1].strip()), -numbered[0]))
    sought = sought.strip()[:_MAX_LINE_CHARACTERS]
    matcher = SequenceMatcher(None, "", sought, autojunk=False)
    best, best_at, left = _MIN_RATIO, None, _MAX_COMPARISONS
    for at, line in enumerate(lines):
        if left <= 0:
            break
        compared = line.strip()[:_MAX_LINE_CHARACTERS]
        matcher.set_seq1(compared)
        left -= _LINE_COMPARISONS
        if matcher.real_quick_ratio() <= best:
            continue
        left -= len(sought) + len(compared)
        if matcher.quick_ratio() <= best:
            continue
        left -= len(sought) * len(compared)
        if (ratio := matcher.ratio()) > best:
            best, best_at = ratio, at
    return None if best_at is None else max(0, best_at - offset)


def _quote_lines(lines: list[str], at: int, count: int) -> str:
    return "\n".join(line[:_MAX_LINE_CHARACTERS] for line in lines[at : at + min(count, _MAX_SHOWN_LINES)])
