"""Writes a response as a stream of events. Each step of the agent with text is an item of its own; the final
response contains the item with the answer, so text of a failed attempt is not part of it."""

from collections.abc import Mapping
from typing import Any, Final

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
_INCOMPLETE: Final[Mapping[str, IncompleteDetails]] = {
    "truncated": IncompleteDetails("max_output_tokens"),
    "refused": IncompleteDetails("content_filter"),
}
"""Outcomes that leave a response incomplete, with the reason."""
_encode = msgspec.json.Encoder().encode


def end_response(response: ResponseObject, message_id: str, end: RunEnd) -> ResponseObject:
    """Return the final response of a run that has an answer, complete or not."""
    details = _INCOMPLETE.get(end.outcome)
    status = "completed" if details is None else "incomplete"
    output = (make_output_message(message_id, end.text, status),) if end.text else ()
    usage = make_response_usage(end.metrics)
    return structs.replace(response, status=status, output=output, usage=usage, incomplete_details=details)


class ResponseWriter:
    """Implements `run_answer.AnswerWriter`."""

    def __init__(self, run_id: RunId, response: ResponseObject) -> None:
        self._run_id = run_id
        self._response = response
        self._sequence = 0
        self._index = -1
        """Index of the latest item."""
        self._message: list[str] | None = None
        """The text of the open message."""
        self._thought: list[str] | None = None

    def write_opening(self) -> bytes:
        started = structs.replace(self._response, status="in_progress")
        return self._event("response.created", response=started) + self._event(
            "response.in_progress", response=started
        )

    def write_piece(self, write_piece: AnswerText | ReasoningText | StepBreak | Restart) -> bytes:
        match write_piece:
            case AnswerText(text):
                return self._write_text(text)
            case ReasoningText(text):
                return b"" if self._message is not None else self._write_reasoning(text)
            case StepBreak():
                return self._close_item("completed")
            case Restart():
                return self._close_item("incomplete")

    def write_waiting(self, text: str) -> bytes:
        events = self._close_item("completed") + self._write_text(text)
        output = (make_output_message(self._item_id, text),)
        events += self._close_item("completed")
        if self._response.background:
            going_on = structs.replace(self._response, status="in_progress", output=output)
            return events + self._event("response.in_progress", response=going_on)
        stands = structs.replace(self._response, status="incomplete", output=output, incomplete_details=WAITING)
        return events + self._event("response.incomplete", response=stands)

    def write_end(self, end: RunEnd) -> bytes:
        whole = end_response(self._response, self._item_id, end)
        events = self._close_item("completed" if whole.status == "completed" else "incomplete")
        return events + self._event(f"response.{whole.status}", response=whole)

    def write_failure(self, failure: Refusal, end: RunEnd | None) -> bytes:
        events = self._close_item("incomplete")
        whole = structs.replace(
            self._response,
            status="failed",
            error=make_response_error(failure),
            usage=None if end is None else make_response_usage(end.metrics),
        )
        return events + self._event("response.failed", response=whole)

    # ── Items ──

    @property
    def _item_id(self) -> str:
        return f"out_{self._run_id}_{self._index}"

    def _write_text(self, text: str) -> bytes:
        opened = b""
        if self._message is None:
            opened = self._close_item("completed")
            self._index, self._message = self._index + 1, []
            started = structs.replace(make_output_message(self._item_id, "", "in_progress"), content=())
            opened += self._event("response.output_item.added", item=started, output_index=self._index)
            opened += self._item_event("response.content_part.added", content_index=0, part=OutputText(""))
        self._message.append(text)
        return opened + self._item_event("response.output_text.delta", content_index=0, delta=text, logprobs=())

    def _write_reasoning(self, text: str) -> bytes:
        opened = b""
        if self._thought is None:
            self._index, self._thought = self._index + 1, []
            started = ReasoningItem(self._item_id, (), "in_progress")
            opened = self._event("response.output_item.added", item=started, output_index=self._index)
            part = SummaryText("")
            opened += self._item_event("response.reasoning_summary_part.added", summary_index=0, part=part)
        self._thought.append(text)
        return opened + self._item_event("response.reasoning_summary_text.delta", summary_index=0, delta=text)

    def _close_item(self, status: ItemStatus) -> bytes:
        """End the open item."""
        if self._message is not None:
            text, self._message = "".join(self._message), None
            events = self._item_event("response.output_text.done", content_index=0, text=text, logprobs=())
            events += self._item_event("response.content_part.done", content_index=0, part=OutputText(text))
            item = make_output_message(self._item_id, text, status)
        elif self._thought is not None:
            text, self._thought = "".join(self._thought), None
            part = SummaryText(text)
            events = self._item_event("response.reasoning_summary_text.done", summary_index=0, text=text)
            events += self._item_event("response.reasoning_summary_part.done", summary_index=0, part=part)
            item = ReasoningItem(self._item_id, (part,), status)
        else:
            return b""
        return events + self._event("response.output_item.done", item=item, output_index=self._index)

    def _item_event(self, kind: str, **more: Any) -> bytes:
        return self._event(kind, item_id=self._item_id, output_index=self._index, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        event = StreamEvent(kind, self._sequence, **more)
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(event))
