"""The items of a reply in the `responses` format: as they are decoded, and as they are put together from pieces."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.messages import Thinking
from treadle.models.http.wire import UnusableReply, check_arguments, encode

_ITEM_KINDS = ("message", "function_call", "reasoning")
PARAGRAPH = "\n\n"


class _Content(Struct, gc=False):
    """A part of a message, or of a reasoning summary."""

    text: str | None = None
    refusal: str | None = None


class ReplyItem(Struct, gc=False):
    type: str
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None
    status: str | None = None

    @property
    def text(self) -> str:
        """Return the text of the item, or the arguments of a call."""
        if self.type == "function_call":
            return encode(self.arguments).decode() if isinstance(self.arguments, dict) else self.arguments or ""
        words = [part.text or part.refusal or "" for part in (*(self.summary or ()), *(self.content or ()))]
        return (PARAGRAPH if self.type == "reasoning" else "").join(words)

    @property
    def refused(self) -> bool:
        return any(part.refusal is not None for part in self.content or ())


def list_texts(parts: list[_Content] | None) -> list[str]:
    """Return the texts of the parts that have one."""
    return [part.text for part in parts or () if part.text]


def make_lists(summary: list[str], content: list[str]) -> dict[str, Any]:
    """Return the two lists of a reasoning item. Only servers that do not seal reasoning have the second one."""
    lists: dict[str, Any] = {"summary": [{"type": "summary_text", "text": text} for text in summary]}
    if content:
        lists["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return lists


def read_item(value: Any) -> ReplyItem | None:
    """Return an item of a known kind, or None for a kind of a later version of the format."""
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") not in _ITEM_KINDS:
        return None
    try:
        return msgspec.convert(value, ReplyItem)
    except msgspec.ValidationError as error:
        raise UnusableReply(f"an item of it cannot be read ({error})") from error


def _are_unreadable(pieces: str, arguments: str) -> bool:
    """Return whether the pieces of a call are not JSON and its complete arguments are. Copilot encrypts the pieces
    only. Empty arguments prove nothing: they may stand for arguments that were cut off."""
    begun, whole = pieces.strip(), arguments.strip()
    return begun[:1] not in ("", "{") and whole[:1] == "{" and whole != "{}"


class OpenItem:
    """The part of an item received so far."""

    __slots__ = (
        "call_id",
        "content",
        "cut",
        "id",
        "kind",
        "name",
        "order",
        "pieces",
        "place",
        "refused",
        "sealed",
        "shown",
        "summary",
        "whole",
    )

    def __init__(self, kind: str, order: int, place: int) -> None:
        self.kind = kind
        self.order = order
        self.place = place
        """Position among the calls of this reply."""
        self.id: str | None = None
        self.call_id = ""
        self.name = ""
        self.sealed: str | None = None
        self.pieces: list[str] = []
        self.shown = 0  # how many pieces have been shown
        self.summary: list[str] = []
        self.content: list[str] = []
        """The parts of a reasoning item, once it is complete."""
        self.refused = False
        self.whole = False
        self.cut = False
        """The provider marked it as incomplete."""

    def may_match(self, item: ReplyItem) -> bool:
        """Return whether `item` may be this item."""
        return self.kind == item.type and (self.call_id == item.call_id or not (self.call_id and item.call_id))

    def is_repeat_of(self, item: ReplyItem) -> bool:
        """Return whether this complete item is being sent once more as `item`."""
        return self.may_match(item) and self.id == item.id and "".join(self.pieces) == item.text

    def identify(self, item: ReplyItem) -> None:
        """Take over the ids and the name of an item."""
        self.id = item.id or self.id
        self.call_id = item.call_id or self.call_id
        self.name = item.name or self.name

    def finish(self, item: ReplyItem) -> None:
        """Mark the item as complete, and append text that did not arrive in pieces."""
        self.identify(item)
        self.refused = self.refused or item.refused
        self.cut = item.status == "incomplete"
        if not self.cut:
            self.whole, self.sealed = True, item.encrypted_content or self.sealed
        if self.kind == "reasoning":
            self.summary = list_texts(item.summary) or self.summary
            self.content = list_texts(item.content) or self.content
        sent, text = "".join(self.pieces), item.text
        if self.kind == "function_call":
            check_arguments(self.name, sent, text)
        if self.kind == "function_call" and _are_unreadable(sent, text):
            self.pieces, self.shown = [text], 1
        elif text != sent and text.startswith(sent):
            self.pieces.append(text[len(sent) :])

    def make_thinking(self, provider: str, model: str, *, is_complete: bool) -> Thinking | None:
        """Return the reasoning, with the form in which it is sent back if it is complete."""
        text = "".join(self.pieces)
        if not text and self.sealed is None:
            return None
        field = details = None
        if not is_complete:
            pass
        elif self.content and (self.summary or len(self.content) > 1):
            field, details = "reasoning_item", encode(make_lists(self.summary, self.content)).decode()
        elif self.content:
            field = "reasoning_text"
        elif self.sealed is None:
            field = "summary_text" if self.summary else "reasoning_text"
        return Thinking(
            text=text,
            provider=provider,
            model=model,
            signature=None,
            sealed=self.sealed,
            item_id=self.id,
            field=field,
            details=details,
        )
