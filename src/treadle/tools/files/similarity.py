"""Shows the text of a file that is closest to one that was not found."""

import re
from collections import Counter
from difflib import SequenceMatcher

from treadle.domain.edits.matches import fold_lines, fold_stripped

_NUMBERED = re.compile(r"\s*\d+\t")
_SPACES = re.compile(r"[^\S\n]+")
_MIN_RATIO = 0.6
_MIN_TELLING_CHARACTERS = 4
"""A shorter line, such as a brace, says nothing about where a block is."""
_MAX_LINE_CHARACTERS = 200
"""How much of a line is compared."""
_MAX_COMPARISONS = 2_000_000
"""In characters, about half a second of work; a hostile file could otherwise take minutes. A count, unlike a time,
gives the same result on a busy machine."""
_LINE_COMPARISONS = 8
"""The cost of a line whose length differs too much to be compared."""
_MAX_VOTES = 200_000
"""Pairs of equal lines that are counted to find a block."""
_MAX_SHOWN_LINES = 12


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
    return explain_nearest(lines, wanted)


def explain_nearest(lines: list[str], wanted: list[str]) -> str:
    """Return the lines that are closest to the wanted ones, with their numbers, and where they first differ."""
    at = _find_block(lines, wanted)
    if at is None:
        at = _find_nearest(lines, wanted)
    if at is None:
        return "Nothing like it is in the file. Read the file again."
    return (
        f"The nearest text is at line {at + 1}:\n{_quote_lines(lines, at, len(wanted))}\n"
        f"{_name_first_difference(lines, wanted, at)}Copy it exactly, without the line numbers."
    )


def _name_first_difference(lines: list[str], wanted: list[str], at: int) -> str:
    """Return which line differs first, if others of several lines are equal."""
    pairs = list(zip(lines[at : at + len(wanted)], wanted, strict=False))
    differing = [number for number, (found, sought) in enumerate(pairs) if found.rstrip() != sought.rstrip()]
    if len(pairs) < 2 or not differing or len(differing) == len(pairs):
        return ""
    number = differing[0]
    return f"Line {at + number + 1} differs: it was sought as {wanted[number].strip()[:_MAX_LINE_CHARACTERS]!r}. "


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
    return _SPACES.sub("", "\n".join(["", *lines, ""]))


def _find_block(lines: list[str], wanted: list[str]) -> int | None:
    """Return the line at which most of the wanted lines would be in their places."""
    sought: dict[str, list[int]] = {}
    for number, line in enumerate(wanted):
        if len(folded := fold_stripped(line)) >= _MIN_TELLING_CHARACTERS:
            sought.setdefault(folded, []).append(number)
    votes: Counter[int] = Counter()
    left = _MAX_VOTES
    for at, line in enumerate(fold_lines(lines, fold_stripped) if sought else ()):
        if line not in sought:
            continue
        numbers = sought[line]
        left -= len(numbers)
        if left < 0:
            break
        votes.update(at - number for number in numbers)
    if not votes:
        return None
    most = max(votes.values())
    return max(0, min(at for at, count in votes.items() if count == most))


def _find_nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Return the line most similar to the first of the wanted lines."""
    offset, sought = max(enumerate(wanted), key=lambda numbered: (bool(numbered[1].strip()), -numbered[0]))
    sought = sought.strip()[:_MAX_LINE_CHARACTERS]
    matcher = SequenceMatcher(None, "", sought, autojunk=False)
    best, nearest, left = _MIN_RATIO, None, _MAX_COMPARISONS
    for line in dict.fromkeys(lines):
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
            best, nearest = ratio, line
    return None if nearest is None else max(0, lines.index(nearest) - offset)


def _quote_lines(lines: list[str], at: int, count: int) -> str:
    """Return lines with their numbers, as read_file shows them."""
    shown = lines[at : at + min(count, _MAX_SHOWN_LINES)]
    return "\n".join(f"{number:>6}\t{line[:_MAX_LINE_CHARACTERS]}" for number, line in enumerate(shown, at + 1))
