"""A reply in the `responses` format, put together from its events: items, usage, end.

OpenAI numbers its items, tells each in pieces and then once more as a whole, and repeats all of them at the end.
Others leave out any of that, so an item is known by its number as far as that goes, else by what it is."""

from collections.abc import Iterable
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.models.finish import STOP_REASONS, Ending
from treadle.models.http.wire import (
    NO_ARGUMENTS,
    UNREADABLE,
    UnusableReply,
    as_fields,
    check_end,
    compact_object,
    encode,
    estimate_tokens,
    make_reader,
    read_count,
)
from treadle.ports.model import CallDelta, Completed, ModelRequest, ReasoningDelta, Show, TextDelta

_DONE = b"[DONE]"
_REFUSAL_DELTA = "response.refusal.delta"
_KIND_OF_DELTA = {
    "response.output_text.delta": "message",
    _REFUSAL_DELTA: "message",
    "response.function_call_arguments.delta": "function_call",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
"""The events that carry a piece of an item, and what kind of item it is."""
_ITEM_KINDS = ("message", "function_call", "reasoning")
_KNOWN_EVENTS = (
    *_KIND_OF_DELTA,
    "response.output_item.added",
    "response.output_item.done",
    "response.reasoning_summary_part.added",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.done",
    "error",
    "",
)
_PARAGRAPH = "\n\n"
_FAILED_STATUSES = frozenset(("failed", "cancelled", "canceled", "error"))


class _Content(Struct, gc=False):
    """A piece of a message, or of the summary of reasoning."""

    text: str | None = None
    refusal: str | None = None


class _Item(Struct, gc=False):
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
        """Its words; of a call its arguments."""
        if self.type == "function_call":
            return encode(self.arguments).decode() if isinstance(self.arguments, dict) else self.arguments or ""
        words = [part.text or part.refusal or "" for part in (*(self.summary or ()), *(self.content or ()))]
        return (_PARAGRAPH if self.type == "reasoning" else "").join(words)

    @property
    def refused(self) -> bool:
        return any(part.refusal is not None for part in self.content or ())


class _Incomplete(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    status: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    usage: Any = None
    output: list[Any] | None = None


class ResponsesEvent(Struct, gc=False):
    type: str = ""
    output_index: int | None = None
    delta: str | None = None
    item: Any = None
    response: _Response | None = None
    error: Any = None
    code: Any = None
    message: Any = None
    object: Any = None
    """`response`: no event, but the whole reply, from servers that do not stream."""


class _EventName(Struct, gc=False):
    type: Any = ""


_decode = msgspec.json.Decoder(ResponsesEvent).decode
_read = make_reader(ResponsesEvent)
_read_name = make_reader(_EventName)
_read_response = make_reader(_Response)


def _read_unusual(payload: bytes) -> ResponsesEvent:
    """An event with lone surrogates; or one that nobody knows yet, which may have any shape and says nothing."""
    if payload.strip().upper() == _DONE:
        return ResponsesEvent()
    try:
        return _read(payload)
    except UnusableReply:
        if _read_name(payload).type in _KNOWN_EVENTS:
            raise
        return ResponsesEvent()


def _read_item(value: Any) -> _Item | None:
    """An item of a kind that is known; None for what a later version of the format may have."""
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") not in _ITEM_KINDS:
        return None
    try:
        return msgspec.convert(value, _Item)
    except msgspec.ValidationError as error:
        raise UnusableReply(f"an item of it cannot be read ({error})") from error


class _OpenItem:
    """An item as far as it has come."""

    __slots__ = (
        "call_id",
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
        "whole",
    )

    def __init__(self, kind: str, order: int, place: int) -> None:
        self.kind = kind
        self.order = order
        self.place = place
        """Among the calls of this reply."""
        self.id: str | None = None
        self.call_id = ""
        self.name = ""
        self.sealed: str | None = None
        self.pieces: list[str] = []
        self.shown = 0  # how many pieces
        self.refused = False
        self.whole = False
        self.cut = False
        """Its provider has called it incomplete."""

    def is_of(self, item: _Item) -> bool:
        """Whether it may be the same item."""
        return self.kind == item.type and (self.call_id == item.call_id or not (self.call_id and item.call_id))

    def is_again(self, item: _Item) -> bool:
        """Whether this item, which is whole, is told once more."""
        return self.is_of(item) and self.id == item.id and "".join(self.pieces) == item.text

    def identify(self, item: _Item) -> None:
        """Take over what an item is called."""
        self.id = item.id or self.id
        self.call_id = item.call_id or self.call_id
        self.name = item.name or self.name

    def finish(self, item: _Item) -> None:
        """It is whole. What came of it in pieces counts; what did not come in pieces is added."""
        self.identify(item)
        self.refused = self.refused or item.refused
        self.cut = item.status == "incomplete"
        if not self.cut:
            self.whole, self.sealed = True, item.encrypted_content or self.sealed
        sent, text = "".join(self.pieces), item.text
        if text != sent and text.startswith(sent):
            self.pieces.append(text[len(sent) :])


class ResponsesReply:
    """What has come of one reply so far."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self._items: list[_OpenItem] = []
        self._at: dict[int | None, _OpenItem] = {}
        """The latest item of each number; without a number, the latest of all."""
        self._fresh: dict[_OpenItem, None] = {}
        self._calls = 0
        self._usage: Any = None
        self._ending = Ending()
        self.done = False

    def take(self, payloads: list[bytes]) -> Any:
        """Add events, up to one that reports an error: that is returned."""
        for payload in payloads:
            try:
                event = _decode(payload)
            except UNREADABLE:
                event = _read_unusual(payload)
            kind = _KIND_OF_DELTA.get(event.type)
            if kind is not None:
                if event.delta:
                    self._add(kind, event, event.delta)
            elif error := self._take_other(event, payload):
                return error
            elif self.done:
                return None
        return None

    def _add(self, kind: str, event: ResponsesEvent, piece: str) -> None:
        open_ = self._at.get(event.output_index)
        if open_ is None or open_.kind != kind or open_.whole:
            open_ = self._begin(kind, event.output_index)
        if event.type == _REFUSAL_DELTA:
            open_.refused = True
        open_.pieces.append(piece)
        self._fresh[open_] = None

    def _take_other(self, event: ResponsesEvent, payload: bytes) -> Any:
        """Take what most events are not; return an error that it reports. What nobody knows yet says nothing."""
        match event.type:
            case "response.output_item.added":
                if (item := _read_item(event.item)) is not None:
                    self._open(event.output_index, item)
            case "response.output_item.done":
                if (item := _read_item(event.item)) is not None:
                    self._close(event.output_index, item)
            case "response.reasoning_summary_part.added":
                open_ = self._at.get(event.output_index)
                if open_ is not None and open_.kind == "reasoning" and open_.pieces:
                    open_.pieces.append(_PARAGRAPH)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.done":
                return self._end(event.type.removeprefix("response."), event.response or _Response())
            case "error":
                return event.error or {"code": event.code, "message": event.message}
            case "" if event.object == "response":
                response = _read_response(payload)
                return self._end(response.status or "completed", response)
            case _:
                return event.error
        return None

    # ── Items ──────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, kind: str, index: int | None) -> _OpenItem:
        order = max((open_.order for open_ in self._items), default=-1) + 1 if index is None else index
        open_ = self._at[index] = self._at[None] = _OpenItem(kind, order, self._calls)
        self._calls += kind == "function_call"
        self._items.append(open_)
        self._fresh[open_] = None
        return open_

    def _open(self, index: int | None, item: _Item) -> None:
        """An item begins, unless something of it has come before. What it holds by now will come again."""
        open_ = self._at.get(index)
        if open_ is None or open_.whole or not open_.is_of(item) or open_.id not in (None, item.id):
            open_ = self._begin(item.type, index)
        open_.identify(item)

    def _close(self, index: int | None, item: _Item) -> None:
        """An item is whole. Where items are numbered badly, it is the first that it can be."""
        at = self._at.get(index)
        if at is not None and at.whole and at.is_again(item):
            return
        open_ = at if at is not None and not at.whole and at.is_of(item) else None
        open_ = open_ or _find_match((open_ for open_ in self._items if not open_.whole), item)
        self._finish(open_ or self._begin(item.type, index), item)

    def _finish(self, open_: _OpenItem, item: _Item) -> None:
        open_.finish(item)
        if len(open_.pieces) > open_.shown:
            self._fresh[open_] = None

    def _end(self, status: str, response: _Response) -> Any:
        """The reply is whole, or has failed: then the error is returned."""
        self._usage = response.usage or self._usage
        said = {status.lower(), (response.status or "").lower()}
        if response.error or said & _FAILED_STATUSES:
            return response.error or "the reply failed, and it does not say why"
        reason = response.incomplete_details.reason if response.incomplete_details is not None else None
        if reason or "incomplete" in said:  # whatever the reason is called, it is not whole
            self._ending.add(reason or "incomplete", "cut")
            self._ending.add(reason or "incomplete")
        self._ending.add("completed")
        self._compare(response.output or ())
        self.done = status not in ("queued", "in_progress")
        return None

    def _compare(self, output: Iterable[Any]) -> None:
        """Take from the items as they are told at the end what has not come before."""
        before = sorted(self._items, key=lambda open_: open_.order)
        told: list[_OpenItem] = []
        for item in filter(None, map(_read_item, output)):
            open_ = _find_match((open_ for open_ in before if open_ not in told), item) or self._begin(
                item.type, None
            )
            if not open_.whole or (item.encrypted_content and not open_.sealed):
                self._finish(open_, item)
            told.append(open_)
        if len(told) == len(self._items):  # then their order is the one that is told
            self._items = told
            for order, open_ in enumerate(told):
                open_.order = order

    # ── What comes of it ───────────────────────────────────────────────────────────────────────────

    def show_news(self, show: Show) -> None:
        """Show what has come since the last time. What came together is shown together."""
        for open_ in self._fresh:
            text = "".join(open_.pieces[open_.shown :])
            open_.shown = len(open_.pieces)
            if open_.kind == "function_call":
                show(CallDelta(open_.place, open_.name, text))
            elif text:
                show(ReasoningDelta(text) if open_.kind == "reasoning" else TextDelta(text))
        if self._fresh:
            self._fresh.clear()

    def completed(self, sent_bytes: int) -> Completed:
        """The whole reply. Raises Unusable if it is not whole."""
        if not self.done:
            raise UnusableReply("it ended without its last event, so it is probably cut off")
        if any(open_.refused for open_ in self._items):
            self._ending.add("refusal")
        if any(open_.cut for open_ in self._items):
            self._ending.add("incomplete")
        check_end(self._ending, has_calls=self._calls > 0)
        items = sorted(self._items, key=lambda open_: open_.order)
        parts = [part for open_ in items if (part := self._part(open_)) is not None]
        stop = STOP_REASONS.get(self._ending.end or "unknown", "other")
        if stop == "end_turn" and any(isinstance(part, ToolUse) for part in parts):
            stop = "tool_use"
        return Completed(tuple(parts), stop, self.usage(sent_bytes), dropped_calls=self._dropped())

    def _dropped(self) -> tuple[str, ...]:
        """The names of the calls that are left out because the reply was cut or filtered."""
        if self._ending.runs_calls:
            return ()
        return tuple([open_.name for open_ in self._items if open_.kind == "function_call"])

    def _part(self, open_: _OpenItem) -> Part | None:
        text = "".join(open_.pieces)
        if open_.kind == "function_call":
            return self._call(open_, text.strip())
        if open_.kind == "message":
            return Text(text) if text else None
        if not text and open_.sealed is None:
            return None
        return Thinking(text, self._provider, self._model, sealed=open_.sealed, item_id=open_.id)

    def _call(self, open_: _OpenItem, text: str) -> ToolUse | None:
        """A call with its arguments. If there are none, that is an empty object: unless they may be cut off."""
        if not self._ending.runs_calls:
            return None
        arguments = "{}" if text in NO_ARGUMENTS and open_.whole else compact_object(text)
        if open_.name and arguments is not None:
            return ToolUse(open_.call_id or open_.id or "", open_.name, arguments)
        what = "has no name" if not open_.name else "has arguments that are not a JSON object"
        raise UnusableReply(
            f"call {open_.place + 1} of it ({open_.name or 'unnamed'}) {what}, so it is probably cut off"
        )

    def usage(self, sent_bytes: int) -> Usage:
        """What the provider counted, or else our estimate."""
        said = as_fields(self._usage)
        sent, counted = read_count(said.get("input_tokens")), read_count(said.get("output_tokens"))
        if not (sent or counted):
            received = sum(len(piece) for open_ in self._items for piece in open_.pieces)
            return Usage(estimate_tokens(sent_bytes), estimate_tokens(received), estimated=True)
        details = as_fields(said.get("input_tokens_details"))
        read, written = read_count(details.get("cached_tokens")), read_count(details.get("cache_write_tokens"))
        return Usage(sent or 0, counted or 0, read or 0, written or 0)


def _find_match(candidates: Iterable[_OpenItem], item: _Item) -> _OpenItem | None:
    return next((open_ for open_ in candidates if open_.is_of(item)), None)
