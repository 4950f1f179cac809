"""Assembles a reply in the `responses` format from its events: items, usage, end.

OpenAI numbers its items, sends each in pieces and once more complete, and repeats all of them at the end. Others
leave out any of that, so an item is identified by its number if there is one, else by its kind and ids."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.messages import Part, Text, ToolUse
from treadle.domain.runs import Usage
from treadle.models.finish import STOP_REASONS, Ending
from treadle.models.formats.responses_items import PARAGRAPH, OpenItem, ReplyItem, read_item
from treadle.models.http.reported_error import find_reported_error
from treadle.models.http.wire import (
    NO_ARGUMENTS,
    UNREADABLE,
    UnusableReply,
    as_fields,
    check_arguments,
    check_end,
    check_parts,
    estimate_tokens,
    make_reader,
    normalize_object,
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
"""The events that carry a piece of an item, and the kind of that item."""
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
_FAILED_STATUSES = frozenset(("failed", "cancelled", "canceled", "error"))


class _Incomplete(Struct, gc=False):
    reason: str | None = None


class _Response(Struct, gc=False):
    status: str | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    usage: Any = None
    output: list[msgspec.Raw] | None = None
    """Its items. Those beyond the limits are never decoded."""


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
    """`response`: not an event but the complete reply, from servers that do not stream."""


class _EventName(Struct, gc=False):
    type: Any = ""


_CALL_TYPE = b'"function_call"'
"""In the JSON of an item that is a call. Inside of a text its quotes would be escaped."""
_decode = msgspec.json.Decoder(ResponsesEvent).decode
_decode_any = msgspec.json.Decoder().decode
_read = make_reader(ResponsesEvent)
_read_name = make_reader(_EventName)
_read_response = make_reader(_Response)


def _read_unusual(payload: bytes) -> ResponsesEvent:
    """Return an event with lone surrogates, or an empty event for one of an unknown type."""
    if payload.strip().upper() == _DONE:
        return ResponsesEvent()
    try:
        return _read(payload)
    except UnusableReply:
        if _read_name(payload).type in _KNOWN_EVENTS:
            raise
        return ResponsesEvent()


class ResponsesReply:
    """The part of a reply received so far."""

    def __init__(self, request: ModelRequest) -> None:
        self._provider = request.provider
        self._model = request.model
        self._items: list[OpenItem] = []
        self._by_index: dict[int | None, OpenItem] = {}
        """The latest item of each number; None: the latest of all."""
        self._unshown: dict[OpenItem, None] = {}
        self._last_order = -1
        self._calls = 0
        self._max_calls = request.max_calls
        self._beyond = OpenItem("function_call", 0, 0)
        """Stands for every call beyond the limit. It stores nothing."""
        self._latest_excess: int | None = None
        """Number of the latest call beyond the limit."""
        self._excess = 0
        self._usage: Any = None
        self._ending = Ending()
        self.done = False

    def feed(self, payloads: list[bytes]) -> Any:
        """Add events. Stop at an event that reports an error, and return that error."""
        for payload in payloads:
            try:
                event = _decode(payload)
            except UNREADABLE:
                event = _read_unusual(payload)
            kind = _KIND_OF_DELTA.get(event.type)
            if kind is not None:
                if event.delta:
                    self._add(kind, event, event.delta)
            elif error := self._handle_other(event, payload):
                return error
            elif self.done:
                return None
        return None

    def _add(self, kind: str, event: ResponsesEvent, piece: str) -> None:
        open_ = self._by_index.get(event.output_index)
        if open_ is None or open_.kind != kind or open_.whole:
            if kind == "function_call" and self._calls >= self._max_calls:
                self._count_excess(event.output_index)
                return
            open_ = self._begin(kind, event.output_index)
        if open_ is self._beyond:
            return
        if event.type == _REFUSAL_DELTA:
            open_.refused = True
        open_.pieces.append(piece)
        self._unshown[open_] = None

    def _handle_other(self, event: ResponsesEvent, payload: bytes) -> Any:
        """Handle an event that is not a delta, and return the error that it reports. Ignore unknown events."""
        match event.type:
            case "response.output_item.added":
                if (item := read_item(event.item)) is not None:
                    self._open(event.output_index, item)
            case "response.output_item.done":
                if (item := read_item(event.item)) is not None:
                    self._close(event.output_index, item)
            case "response.reasoning_summary_part.added":
                open_ = self._by_index.get(event.output_index)
                if open_ is not None and open_.kind == "reasoning" and open_.pieces:
                    open_.pieces.append(PARAGRAPH)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.done":
                return self._end(event.type.removeprefix("response."), event.response or _Response())
            case "error":
                return event.error or {"code": event.code, "message": event.message}
            case "" if event.object == "response":
                response = _read_response(payload)
                return self._end(response.status or "completed", response)
            case "":
                return event.error or find_reported_error(payload)
            case _:
                return event.error
        return None

    # ── Items ──────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, kind: str, index: int | None) -> OpenItem:
        if kind == "function_call" and self._calls >= self._max_calls:
            self._count_excess(index)
            return self._beyond
        check_parts(len(self._items))
        order = self._last_order + 1 if index is None else index
        self._last_order = max(self._last_order, order)
        open_ = self._by_index[index] = self._by_index[None] = OpenItem(kind, order, self._calls)
        self._calls += kind == "function_call"
        self._items.append(open_)
        self._unshown[open_] = None
        return open_

    def _open(self, index: int | None, item: ReplyItem) -> None:
        """Start an item, unless a piece of it arrived before. Its content is sent again later."""
        open_ = self._by_index.get(index)
        if self._skips(index, item):
            return
        if open_ is None or open_.whole or not open_.may_match(item) or open_.id not in (None, item.id):
            open_ = self._begin(item.type, index)
        if open_ is not self._beyond:
            open_.identify(item)

    def _skips(self, index: int | None, item: ReplyItem) -> bool:
        """Return whether an item is a call beyond the limit, and count it if it is another one."""
        open_ = self._by_index.get(index)
        is_stored = open_ is not None and open_ is not self._beyond and open_.may_match(item)
        if item.type != "function_call" or self._calls < self._max_calls or is_stored:
            return False
        self._count_excess(index)
        return True

    def _count_excess(self, index: int | None) -> None:
        """Count a call beyond the limit, unless more of the latest one arrives."""
        self._by_index[None] = self._beyond
        if index in self._by_index:
            self._by_index[index] = self._beyond
        if index is None or index != self._latest_excess:
            self._excess += 1
            self._latest_excess = index

    def _close(self, index: int | None, item: ReplyItem) -> None:
        """Complete an item. If the items are numbered badly, complete the first one that matches."""
        current = self._by_index.get(index)
        if self._skips(index, item):
            return
        if current is not None and current.whole and current.is_repeat_of(item):
            return
        open_ = current if current is not None and not current.whole and current.may_match(item) else None
        open_ = open_ or _find_match((open_ for open_ in self._items if not open_.whole), item)
        self._finish(open_ or self._begin(item.type, index), item)

    def _finish(self, open_: OpenItem, item: ReplyItem) -> None:
        if open_ is self._beyond:
            return
        open_.finish(item)
        if len(open_.pieces) > open_.shown:
            self._unshown[open_] = None

    def _end(self, status: str, response: _Response) -> Any:
        """Complete the reply, or return the error with which it failed."""
        self._usage = response.usage or self._usage
        statuses = {status.lower(), (response.status or "").lower()}
        if response.error or statuses & _FAILED_STATUSES:
            return response.error or "the reply failed, and it does not say why"
        reason = response.incomplete_details.reason if response.incomplete_details is not None else None
        if reason or "incomplete" in statuses:  # it is incomplete whatever the reason
            self._ending.add(reason or "incomplete", "cut")
            self._ending.add(reason or "incomplete")
        self._ending.add("completed")
        self._compare(response.output or ())
        self.done = status not in ("queued", "in_progress")
        return None

    def _compare(self, output: Iterable[msgspec.Raw]) -> None:
        """Add what is in the final list of items and has not arrived before."""
        unlisted = sorted(self._items, key=lambda open_: open_.order)
        listed: list[OpenItem] = []
        counted, self._excess = self._excess, 0
        for item in self._read_items(output):
            open_ = _find_match(unlisted, item)
            if open_ is None:
                open_ = self._begin(item.type, None)
            else:
                unlisted.remove(open_)
            if open_.whole and open_.kind == "function_call" and open_ is not self._beyond:
                check_arguments(open_.name, "".join(open_.pieces), item.text)
            if not open_.whole or (item.encrypted_content and not open_.sealed):
                self._finish(open_, item)
            listed.append(open_)
        self._excess = max(self._excess, counted)
        if len(listed) == len(self._items):  # then the final list also decides the order
            self._items = listed
            for order, open_ in enumerate(listed):
                open_.order = order

    def _read_items(self, output: Iterable[msgspec.Raw]) -> Iterator[ReplyItem]:
        """Yield the items of the final list without the calls beyond the limit, which are counted."""
        calls = 0
        for raw in output:
            calls += (is_call := _CALL_TYPE in bytes(raw))
            if is_call and calls > self._max_calls:
                self._excess += 1
            elif (item := read_item(_decode_any(raw))) is not None:
                yield item

    # ── Results ────────────────────────────────────────────────────────────────────────────────────

    def show_new(self, show: Show) -> None:
        """Show what arrived since the last call. Pieces that arrived together are shown together."""
        for open_ in self._unshown:
            text = "".join(open_.pieces[open_.shown :])
            open_.shown = len(open_.pieces)
            if open_.kind == "function_call":
                show(CallDelta(open_.place, open_.name, text))
            elif text:
                show(ReasoningDelta(text) if open_.kind == "reasoning" else TextDelta(text))
        if self._unshown:
            self._unshown.clear()

    def finish(self, sent_bytes: int) -> Completed:
        """Return the complete reply. Raise UnusableReply if it is incomplete."""
        if not self.done:
            raise UnusableReply("it ended without its last event, so it is probably cut off")
        if any(open_.refused for open_ in self._items):
            self._ending.add("refusal")
        if any(open_.cut for open_ in self._items):
            self._ending.add("incomplete")
        check_end(self._ending, has_calls=self._calls > 0)
        items = sorted(self._items, key=lambda open_: open_.order)
        parts = [part for open_ in items if (part := self._make_part(open_)) is not None]
        stop = STOP_REASONS.get(self._ending.end or "unknown", "other")
        if stop == "end_turn" and any(isinstance(part, ToolUse) for part in parts):
            stop = "tool_use"
        return Completed(
            tuple(parts),
            stop,
            self.usage(sent_bytes),
            dropped_calls=self._list_dropped_calls(),
            excess_calls=self._excess,
            refusal=self._ending.refusal,
            window_full=self._ending.window_full,
        )

    def _list_dropped_calls(self) -> tuple[str, ...]:
        """Return the names of the calls left out because the reply was cut or filtered."""
        if self._ending.runs_calls:
            return ()
        return tuple([open_.name for open_ in self._items if open_.kind == "function_call"])

    def _make_part(self, open_: OpenItem) -> Part | None:
        text = "".join(open_.pieces)
        if open_.kind == "function_call":
            return self._make_call(open_, text.strip())
        if open_.kind == "message":
            return Text(text) if text else None
        is_complete = open_.whole or self._ending.runs_calls
        return open_.make_thinking(self._provider, self._model, is_complete=is_complete)

    def _make_call(self, open_: OpenItem, text: str) -> ToolUse | None:
        """Return a call. Missing arguments mean an empty object, unless they may be cut off."""
        if not self._ending.runs_calls:
            return None
        arguments = "{}" if text in NO_ARGUMENTS and open_.whole else normalize_object(text)
        if open_.name and arguments is not None:
            return ToolUse(open_.call_id or open_.id or "", open_.name, arguments)
        what = "has no name" if not open_.name else "has arguments that are not a JSON object"
        name = open_.name or "unnamed"
        raise UnusableReply(f"call {open_.place + 1} of it ({name}) {what}, so it is probably cut off")

    def usage(self, sent_bytes: int) -> Usage:
        """Return the usage reported by the provider, or else an estimate."""
        usage = as_fields(self._usage)
        sent, output = read_count(usage.get("input_tokens")), read_count(usage.get("output_tokens"))
        if not (sent or output):
            received = sum(len(piece) for open_ in self._items for piece in open_.pieces)
            return Usage(estimate_tokens(sent_bytes), estimate_tokens(received), estimated=True)
        details = as_fields(usage.get("input_tokens_details"))
        read, written = read_count(details.get("cached_tokens")), read_count(details.get("cache_write_tokens"))
        return Usage(sent or 0, output or 0, read or 0, written or 0)


def _find_match(candidates: Iterable[OpenItem], item: ReplyItem) -> OpenItem | None:
    return next((open_ for open_ in candidates if open_.may_match(item)), None)
