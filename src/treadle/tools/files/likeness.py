"""Why a text was not found in a file, as far as can be guessed: the words that lead to the next try."""

import re
import time
from difflib import SequenceMatcher

_NUMBERED = re.compile(r"\s*\d+\t")
_SPACES = re.compile(r"\s+")
_ENOUGH = 0.6
_LONGEST = 200
"""Characters of a line that are compared."""
_PATIENCE = 0.5
"""Seconds; a hostile file could otherwise take minutes."""
_SHOWN_LINES = 6


def why_not_found(text: str, old: str, new: str) -> str:
    wanted = old.splitlines() or [old]
    lines = text.splitlines()
    if all(_NUMBERED.match(line) for line in wanted if line.strip()):
        return "It begins with the line numbers of read_file: leave them out."
    if (at := _same_but_for_spaces(lines, wanted)) is not None:
        return f"The same text with other spaces stands at line {at + 1}:\n{_quoted(lines, at, len(wanted))}\n"
    if new.strip() and new in text:
        line = text.count("\n", 0, text.find(new)) + 1
        return f"But `new` stands there already, at line {line}: the change may have been made before."
    if (at := _nearest(lines, wanted)) is not None:
        return f"The nearest text is at line {at + 1}:\n{_quoted(lines, at, len(wanted))}\nCopy it exactly."
    return "Nothing like it is in the file. Read the file again."


def _same_but_for_spaces(lines: list[str], wanted: list[str]) -> int | None:
    """The line at which the same words stand."""
    words = [_words(line) for line in wanted]
    if not any(words):
        return None
    first = next(index for index, word in enumerate(words) if word)
    for at in range(len(lines) - len(words) + first + 1):
        start = at - first
        if start >= 0 and _words(lines[at]) == words[first] and _fits(lines, start, words):
            return start
    return None


def _fits(lines: list[str], start: int, words: list[str]) -> bool:
    return len(lines) >= start + len(words) and all(
        _words(lines[start + index]) == word for index, word in enumerate(words)
    )


def _words(line: str) -> str:
    return _SPACES.sub("", line)


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """The line that is most like the first of those that were wanted."""
    offset, sought = max(enumerate(wanted), key=lambda numbered: (bool(numbered[1].strip()), -numbered[0]))
    matcher = SequenceMatcher(None, "", sought.strip()[:_LONGEST], autojunk=False)
    best, best_at = _ENOUGH, None
    give_up = time.monotonic() + _PATIENCE
    for at, line in enumerate(lines):
        if time.monotonic() > give_up:
            break
        matcher.set_seq1(line.strip()[:_LONGEST])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, best_at = ratio, at
    return None if best_at is None else max(0, best_at - offset)


def _quoted(lines: list[str], at: int, count: int) -> str:
    return "\n".join(line[:_LONGEST] for line in lines[at : at + min(count, _SHOWN_LINES)])
