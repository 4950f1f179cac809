"""A JSON value that is read while it arrives, for readers who want what there is of it.

Each character is read once. An incomplete key, number or word is left out until it is complete; an open string,
list or object is shown as far as it goes."""

import json
import re
from typing import Any, Final, Literal

import msgspec

from treadle.domain.limits import MAX_JSON_DEPTH

_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_DECODABLE: Final = re.compile(r'(?:[^"\\]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_PARTIAL_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SCALAR: Final = re.compile(r"[-+.0-9a-zA-Z]*")
_NOTHING: Final = object()

_Expected = Literal["value", "first_item", "key", "first_key", "colon", "end_of_value", "nothing"]


class PartialJson:
    """The value so far of JSON text that arrives in pieces. Text that is not JSON adds nothing from there on."""

    def __init__(self) -> None:
        self.is_broken = False
        self._expected: _Expected = "value"
        self._open: list[list[Any] | dict[str, Any]] = []
        """The open lists and objects, the outermost first."""
        self._keys: list[str] = []
        """For each of them, the key of its open value; "" for a list."""
        self._root: Any = _NOTHING
        """The value, once it is complete."""
        self._string: _OpenString | None = None
        self._scalar: list[str] = []
        """The pieces of an open number or word."""

    def feed(self, text: str) -> None:
        """Read the next piece."""
        place = 0
        while place < len(text) and not self.is_broken:
            if self._string is not None:
                place = self._read_string(self._string, text, place)
            elif self._scalar:
                place = self._read_scalar(text, place)
            else:
                found = _BLANKS.match(text, place)
                place = found.end() if found else place
                if place < len(text):
                    place = self._read_sign(text, place)

    @property
    def cost(self) -> int:
        """The number of characters, items and keys that `copy` copies."""
        characters = 0 if self._string is None else self._string.length
        return characters + sum(map(len, self._open))

    def copy(self, missing: Any = None) -> Any:
        """Return the value so far, or `missing` if there is none. All copies share what is complete."""
        value = self._root
        if self._string is not None and not self._reads_key:
            value = self._string.text
        for container, key in zip(reversed(self._open), reversed(self._keys), strict=True):
            value = _extend(container, key, value)
        return missing if value is _NOTHING else value

    @property
    def _reads_key(self) -> bool:
        return self._expected in ("key", "first_key")

    def _read_sign(self, text: str, place: int) -> int:
        sign = text[place]
        match sign:
            case '"' if self._expected in ("value", "first_item", "key", "first_key"):
                self._string = _OpenString()
            case "{" | "[" if self._expected in ("value", "first_item") and len(self._open) < MAX_JSON_DEPTH:
                self._open.append({} if sign == "{" else [])
                self._keys.append("")
                self._expected = "first_key" if sign == "{" else "first_item"
            case "}" if self._expected in ("first_key", "end_of_value") and self._is_in(dict):
                self._close()
            case "]" if self._expected in ("first_item", "end_of_value") and self._is_in(list):
                self._close()
            case ":" if self._expected == "colon":
                self._expected = "value"
            case "," if self._expected == "end_of_value":
                self._expected = "key" if self._is_in(dict) else "value"
            case _ if self._expected in ("value", "first_item") and _SCALAR.match(sign):
                return self._read_scalar(text, place)
            case _:
                self.is_broken = True
        return place + 1

    def _is_in(self, kind: type[dict[str, Any]] | type[list[Any]]) -> bool:
        return bool(self._open) and isinstance(self._open[-1], kind)

    def _read_string(self, string: "_OpenString", text: str, place: int) -> int:
        end = string.read(text, place)
        if end is None:
            self.is_broken = True
            return len(text)
        if string.is_closed:
            self._string = None
            if self._reads_key:
                self._keys[-1] = string.text
                self._expected = "colon"
            else:
                self._add(string.text)
        return end

    def _read_scalar(self, text: str, place: int) -> int:
        found = _SCALAR.match(text, place)
        end = found.end() if found else place
        self._scalar.append(text[place:end])
        if end < len(text):  # something else follows, so it is complete
            word, self._scalar = "".join(self._scalar), []
            try:
                self._add(msgspec.json.decode(word))
            except msgspec.DecodeError:
                self.is_broken = True
        return end

    def _close(self) -> None:
        self._keys.pop()
        self._add(self._open.pop())

    def _add(self, value: Any) -> None:
        """Add a complete value to the list or object that is open, or make it the whole value."""
        if not self._open:
            self._root, self._expected = value, "nothing"
            return
        container = self._open[-1]
        if isinstance(container, dict):
            container[self._keys[-1]] = value
        else:
            container.append(value)
        self._expected = "end_of_value"


class _OpenString:
    """The part of a string that can be decoded."""

    def __init__(self) -> None:
        self.is_closed = False
        self.length = 0
        self._pieces: list[str] = []
        self._waiting = ""
        """An incomplete escape."""
        self._high = ""
        """A high surrogate whose low surrogate has not arrived."""

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def read(self, text: str, place: int) -> int | None:
        """Read on. Return where the string or the text ends, or None if it is not a string of JSON."""
        if self._waiting:
            text, place, skipped = self._waiting + text[place:], 0, place - len(self._waiting)
        else:
            skipped = 0
        found = _DECODABLE.match(text, place)
        end = found.end() if found else place
        rest = text[end : end + len("\\u0000")]
        self.is_closed = rest[:1] == '"'
        if rest and not self.is_closed and not _PARTIAL_ESCAPE.fullmatch(rest):
            return None
        try:
            self._append(self._high + json.loads(f'"{text[place:end]}"'))
        except ValueError:  # a control character
            return None
        self._waiting = "" if self.is_closed else rest
        return skipped + (end + 1 if self.is_closed else len(text))

    def _append(self, text: str) -> None:
        is_cut = "\ud800" <= text[-1:] <= "\udbff" and not self.is_closed
        self._high = text[-1] if is_cut else ""
        piece = text[:-1] if is_cut else text
        if piece:
            piece = piece.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            self.length += len(piece)
            self._pieces.append(piece)


def _extend(container: list[Any] | dict[str, Any], key: str, value: Any) -> list[Any] | dict[str, Any]:
    """Return a copy of a list or object with its open value, if there is any."""
    if isinstance(container, dict):
        return dict(container) if value is _NOTHING else {**container, key: value}
    return container.copy() if value is _NOTHING else [*container, value]
