"""`reasoning_details`: the reasoning of a reply as a list of typed items, as OpenRouter and MiniMax send it.

An item arrives in pieces over many chunks and is sent back complete."""

from itertools import pairwise
from typing import Any, cast

from treadle.models.http.wire import as_fields, encode

MAX_CHARACTERS = 1024 * 1024
"""Limit on all items of one reply together. Larger lists are dropped."""
_TEXT_FIELDS = ("text", "summary", "data")
"""The fields that arrive in pieces. Of any other field, the latest value counts."""
_MIN_REPEATED_CHARACTERS = 16
"""A first piece of this length does not start the second piece by accident."""


class _Item:
    """The part of an item received so far."""

    __slots__ = ("fields", "pieces")

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.pieces: dict[str, list[str]] = {}

    def add(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            if name in _TEXT_FIELDS and isinstance(value, str):
                self.fields.setdefault(name, "")
                self.pieces.setdefault(name, []).append(value)
            elif value is not None or name not in self.fields:
                self.fields[name] = value

    def build(self) -> dict[str, Any]:
        return self.fields | {name: join_pieces(pieces) for name, pieces in self.pieces.items()}


class ReasoningDetails:
    """The items of one reply."""

    def __init__(self) -> None:
        self._items: dict[tuple[Any, ...], _Item] = {}
        self._latest: tuple[Any, ...] = ()

    def add(self, details: Any) -> str:
        """Add the items of one chunk. Return their visible text."""
        texts: list[str] = []
        for detail in cast("list[Any]", details) if isinstance(details, list) else ():
            fields = as_fields(detail)
            if not fields:
                continue
            key = self._key(fields)
            self._latest = key
            self._items.setdefault(key, _Item()).add(fields)
            texts += _visible_text(fields)
        return "".join(texts)

    def _key(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        """Return what identifies an item: its type, and its index or id if it has one."""
        kind = str(fields.get("type"))
        if fields.get("index") is not None:
            return (kind, str(fields["index"]))
        if fields.get("id") is not None:
            return (kind, "id", str(fields["id"]))
        in_pieces = isinstance(fields.get("text"), str) or isinstance(fields.get("summary"), str)
        if in_pieces and self._latest[:1] == (kind,):
            return self._latest
        return (kind, "place", len(self._items))

    @property
    def text(self) -> str:
        """Return all visible text."""
        return "".join([word for item in self._items.values() for word in _visible_text(item.build())])

    def build(self) -> str | None:
        """Return the JSON text of all items, or None if there are none or they exceed the limit."""
        if not self._items:
            return None
        text = encode([item.build() for item in self._items.values()]).decode()
        return text if len(text) <= MAX_CHARACTERS else None


def _visible_text(fields: dict[str, Any]) -> list[str]:
    text = fields.get("text") or fields.get("summary")
    return [text] if isinstance(text, str) else []


def join_pieces(pieces: list[str]) -> str:
    """Return the text of a field from its pieces. Some servers repeat everything so far in every piece."""
    may_repeat = len(pieces) > 2 or (len(pieces) == 2 and len(pieces[0]) >= _MIN_REPEATED_CHARACTERS)
    if may_repeat and all(earlier and later.startswith(earlier) for earlier, later in pairwise(pieces)):
        return pieces[-1]
    return "".join(pieces)
