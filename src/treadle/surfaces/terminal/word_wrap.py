"""Breaking lines for a terminal between words. Commands that users copy stay on one line."""

import re
from collections.abc import Iterable, Iterator

from treadle.domain.graphemes import count_columns, display_width, split_graphemes

_COMMAND = "treadle "
_UNITS = re.compile(r"(?:`[^`]*`\S*|\S+) *")
"""Words, and commands in backticks with the punctuation after them, each with the spaces that follow."""


def wrap_words(text: str, width: int) -> list[str]:
    """Return the lines of a text. Only a word that is longer than the width is broken."""
    return _fill([part for word in text.split() for part in _break_word(word, width)], width)


def _break_word(word: str, width: int) -> Iterator[str]:
    """Yield a word, or its parts if it does not fit into a line."""
    part, used = "", 0
    for grapheme in split_graphemes(word):
        size = count_columns(grapheme)
        if part and used + size > width:
            yield part
            part, used = "", 0
        part, used = part + grapheme, used + size
    yield f"{part} "


def fold_note(line: str, width: int | None) -> list[str]:
    """Return the lines of a note for people. With no width it stays one line. A command in backticks is not broken,
    and neither is a command at the end, after a colon."""
    if width is None or display_width(line) <= width:
        return [line]
    words = line.lstrip(" ")
    indent = line[: len(line) - len(words)]
    text, colon, command = words.rpartition(f": {_COMMAND}")
    units = _UNITS.findall(f"{text}:" if colon else words)
    lines = _fill(units, width - len(indent))
    if colon:
        lines += [f"{_COMMAND}{command}"]
    return [f"{indent}{each}" for each in lines]


def _fill(units: Iterable[str], width: int) -> list[str]:
    """Put units, which end in the spaces that follow them, into lines of a width."""
    lines: list[str] = []
    for unit in units:
        if lines and display_width(lines[-1]) + display_width(unit.rstrip(" ")) <= width:
            lines[-1] += unit
        else:
            lines.append(unit)
    return [line.rstrip(" ") for line in lines]
