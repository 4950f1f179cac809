"""A response as it comes, event by event. Each step of the agent that says something is an item of its own; the
final response has the one with the answer. So what a failed attempt has said is no part of it."""

from typing import Any

import msgspec
from msgspec import structs

from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.openai.deltas import AnswerText, ReasoningText, Restart, StepBreak
from treadle.surfaces.http.openai.response_schemas import (
    IncompleteDetails,
    ItemStatus,
    OutputText,
    ReasoningItem,
    ResponseObject,
    StreamEvent,
    SummaryText,
    make_output_message,
    make_response_error,
    make_response_usage,
)

WAITING = IncompleteDetails(None)
TRUNCATED = IncompleteDetails("max_output_tokens")
_encode = msgspec.json.Encoder().encode


class ResponseWriter:
    """Implements `answering.Writer`."""

    def __init__(self, run_id: RunId, response: ResponseObject) -> None:
        self._run_id = run_id
        self._response = response
        self._sequence = 0
        self._index = -1
        """Of the latest item."""
        self._message: list[str] | None = None
        """The message that is open: its text."""
        self._thought: list[str] | None = None

    def opening(self) -> bytes:
        begun = structs.replace(self._response, status="in_progress")
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def piece(self, piece: AnswerText | ReasoningText | StepBreak | Restart) -> bytes:
        match piece:
            case AnswerText(text):
                return self._say(text)
            case ReasoningText(text):
                return b"" if self._message is not None else self._think(text)
            case StepBreak():
                return self._close("completed")
            case Restart():
                return self._close("incomplete")

    def standing(self, text: str) -> bytes:
        said = self._close("completed") + self._say(text)
        output = (make_output_message(self._item_id, text),)
        said += self._close("completed")
        if self._response.background:
            going_on = structs.replace(self._response, status="in_progress", output=output)
            return said + self._event("response.in_progress", response=going_on)
        stands = structs.replace(self._response, status="incomplete", output=output, incomplete_details=WAITING)
        return said + self._event("response.incomplete", response=stands)

    def over(self, end: RunEnd) -> bytes:
        cut = end.outcome == "truncated"
        said = self._close("incomplete" if cut else "completed")
        whole = structs.replace(
            self._response,
            status="incomplete" if cut else "completed",
            output=(make_output_message(self._item_id, end.text, "incomplete" if cut else "completed"),)
            if end.text
            else (),
            usage=make_response_usage(end.metrics),
            incomplete_details=TRUNCATED if cut else None,
        )
        return said + self._event("response.incomplete" if cut else "response.completed", response=whole)

    def failed(self, failure: Refusal, end: RunEnd | None) -> bytes:
        said = self._close("incomplete")
        whole = structs.replace(
            self._response,
            status="failed",
            error=make_response_error(failure),
            usage=None if end is None else make_response_usage(end.metrics),
        )
        return said + self._event("response.failed", response=whole)

    # ── Items ──

    @property
    def _item_id(self) -> str:
        return f"out_{self._run_id}_{self._index}"

    def _say(self, text: str) -> bytes:
        opened = b""
        if self._message is None:
            opened = self._close("completed")
            self._index, self._message = self._index + 1, []
            begun = structs.replace(make_output_message(self._item_id, "", "in_progress"), content=())
            opened += self._event("response.output_item.added", item=begun, output_index=self._index)
            opened += self._in_item("response.content_part.added", content_index=0, part=OutputText(""))
        self._message.append(text)
        return opened + self._in_item("response.output_text.delta", content_index=0, delta=text, logprobs=())

    def _think(self, text: str) -> bytes:
        opened = b""
        if self._thought is None:
            self._index, self._thought = self._index + 1, []
            begun = ReasoningItem(self._item_id, (), "in_progress")
            opened = self._event("response.output_item.added", item=begun, output_index=self._index)
            part = SummaryText("")
            opened += self._in_item("response.reasoning_summary_part.added", summary_index=0, part=part)
        self._thought.append(text)
        return opened + self._in_item("response.reasoning_summary_text.delta", summary_index=0, delta=text)

    def _close(self, status: ItemStatus) -> bytes:
        """End the item that is open."""
        if self._message is not None:
            text, self._message = "".join(self._message), None
            said = self._in_item("response.output_text.done", content_index=0, text=text, logprobs=())
            said += self._in_item("response.content_part.done", content_index=0, part=OutputText(text))
            item = make_output_message(self._item_id, text, status)
        elif self._thought is not None:
            text, self._thought = "".join(self._thought), None
            part = SummaryText(text)
            said = self._in_item("response.reasoning_summary_text.done", summary_index=0, text=text)
            said += self._in_item("response.reasoning_summary_part.done", summary_index=0, part=part)
            item = ReasoningItem(self._item_id, (part,), status)
        else:
            return b""
        return said + self._event("response.output_item.done", item=item, output_index=self._index)

    def _in_item(self, kind: str, **more: Any) -> bytes:
        return self._event(kind, item_id=self._item_id, output_index=self._index, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        event = StreamEvent(kind, self._sequence, **more)
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))
