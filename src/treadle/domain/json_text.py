"""The structure of JSON text, found without decoding it: decoders recurse, and hostile text is deep."""

import re
from typing import Final

from treadle.domain.limits import MAX_JSON_DEPTH

_STRUCTURE: Final = re.compile(r'[{}\[\]]|"(?:[^"\\]++|\\.)*+"', re.DOTALL)
"""Brackets, and strings, which may contain brackets that do not count."""
_SIGN: Final = re.compile(r'["\\{}\[\]]')


def is_too_deep(text: str, levels: int = MAX_JSON_DEPTH) -> bool:
    """Return whether JSON text is nested deeper than this. The cost grows with the length only."""
    if text.count("{") + text.count("[") <= levels:  # nearly always
        return False
    depth = 0
    for found in _STRUCTURE.finditer(text):
        match text[found.start()]:
            case "{" | "[":
                depth += 1
                if depth > levels:
                    return True
            case "}" | "]":
                depth -= 1
            case _:
                pass
    return False


class ObjectProgress:
    """Follows a JSON object that arrives in pieces. Each character is read once."""

    __slots__ = ("_depth", "_in_string", "_is_escaped", "_is_open", "has_ended")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_open = False
        self.has_ended = False
        """The first object is complete. Whether it is valid is not known."""

    def add(self, piece: str) -> None:
        """Read the next piece."""
        place = 0
        if self._is_escaped and piece:
            self._is_escaped, place = False, 1
        while not self.has_ended and (found := _SIGN.search(piece, place)) is not None:
            place = found.end()
            sign = found[0]
            if sign == "\\":
                if self._in_string:
                    self._is_escaped = place >= len(piece)
                    place += 1
            elif sign == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._count(sign)

    def _count(self, bracket: str) -> None:
        self._depth += 1 if bracket in "{[" else -1
        self._is_open = self._is_open or bracket == "{"
        self.has_ended = self._is_open and self._depth <= 0
