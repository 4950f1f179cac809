"""Writes a response as a stream of events, and keeps what the response contains.

Each model call has items of its own, whose ids follow from the journal. The final response contains the items of
the last one: text of a failed attempt, and what the agent said between calls of its tools, are not part of it.

Events are numbered by what they carry, a delta by its characters, so their numbers do not depend on the pieces in
which the text arrived. After a failed attempt, whose text is not in the journal, they go on at the next multiple of
a large number."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from treadle.domain.client_tools import ClientTool
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.openai.call_ids import CallPlace, make_call_id
from treadle.surfaces.http.openai.deltas import (
    AnswerText,
    CallAsked,
    Called,
    Ended,
    ReasoningText,
    Restart,
    StepBreak,
)
from treadle.surfaces.http.openai.offered_tools import find_kind
from treadle.surfaces.http.openai.response_schemas import (
    CustomCallItem,
    FunctionCallItem,
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ResponseObject,
    ShellAction,
    ShellCallItem,
    StreamEvent,
    SummaryText,
    make_output_message,
    make_response_error,
    make_response_usage,
)

WAITING = IncompleteDetails(None)
NUMBERS_PER_ATTEMPT = 1 << 20
_INCOMPLETE: Final[Mapping[str, IncompleteDetails]] = {
    "truncated": IncompleteDetails("max_output_tokens"),
    "refused": IncompleteDetails("content_filter"),
}
"""Outcomes that leave a response incomplete, with the reason."""
_encode = msgspec.json.Encoder().encode


class _Freeform(Struct, frozen=True):
    input: str


class _ShellArguments(Struct, frozen=True):
    command: tuple[str, ...]
    timeout_ms: int | None = None
    working_directory: str | None = None


_freeform = msgspec.json.Decoder(_Freeform)
_shell = msgspec.json.Decoder(_ShellArguments)


class ResponseWriter:
    """Implements `run_answer.AnswerWriter`. `response` is the response so far, and the final one at the end."""

    def __init__(
        self,
        run_id: RunId,
        response: ResponseObject,
        tools: Iterable[ClientTool] = (),
        starting_after: int = -1,
    ) -> None:
        self._run_id = run_id
        self.response = response
        self._kinds = {tool.name: find_kind(tool) for tool in tools}
        self._starting_after = starting_after
        """Number of the last event that the client has."""
        self._number = -1
        """Number of the latest event."""
        self.is_done = False
        self._index = -1
        """Index of the latest item."""
        self._item_id = ""
        self._items: list[OutputItem] = []
        """The items of the latest model call that are done."""
        self._message: list[str] | None = None
        """The text of the open message."""
        self._thought: list[str] | None = None

    def write_opening(self) -> bytes:
        started = structs.replace(self.response, status="in_progress")
        return self._event("response.created", response=started) + self._event(
            "response.in_progress", response=started
        )

    def write_piece(self, write_piece: AnswerText | ReasoningText | StepBreak | Restart | CallAsked) -> bytes:
        match write_piece:
            case CallAsked() as asked:
                return self._write_call(asked)
            case AnswerText(text, request):
                return self._write_text(text, request)
            case ReasoningText(text, request):
                return b"" if self._message is not None else self._write_reasoning(text, request)
            case StepBreak():
                events = self._close_item("completed")
                self._items.clear()
                return events
            case Restart():
                events = self._close_item("incomplete")
                self._items.clear()
                self._number += NUMBERS_PER_ATTEMPT - self._number % NUMBERS_PER_ATTEMPT
                return events

    def write_waiting(self, text: str) -> bytes:
        events = self._close_item("completed")
        if text:
            self._items.clear()
            events += self._write_text(text, 0, "wait") + self._close_item("completed")
        output = tuple(self._items)
        if self.response.background:
            self.response = structs.replace(self.response, status="in_progress", output=output)
            return events + self._last_event("response.in_progress")
        self.response = structs.replace(
            self.response, status="incomplete", output=output, incomplete_details=WAITING
        )
        return events + self._last_event("response.incomplete")

    def write_calls(self, called: Called) -> bytes:
        events = self._close_item("completed")
        self.response = structs.replace(
            self.response,
            status="completed",
            output=tuple(self._items),
            usage=make_response_usage(called.usage),
            completed_at=int(called.at),
        )
        return events + self._last_event("response.completed")

    def write_end(self, ended: Ended) -> bytes:
        end = ended.end
        details = _INCOMPLETE.get(end.outcome)
        status = "completed" if details is None else "incomplete"
        events = self._close_item(status)
        self._complete_answer(end.text, status)
        self.response = structs.replace(
            self.response,
            status=status,
            output=tuple(self._items),
            usage=make_response_usage(ended.usage or end.metrics),
            incomplete_details=details,
            completed_at=int(ended.at) if details is None else None,
        )
        return events + self._last_event(f"response.{status}")

    def write_failure(self, failure: Refusal, end: RunEnd | None) -> bytes:
        events = self._close_item("incomplete")
        usage = None if end is None else make_response_usage(end.metrics)
        if end is not None and end.outcome == "cancelled":
            self.response = structs.replace(self.response, status="cancelled", usage=usage)
        else:
            self.response = structs.replace(
                self.response, status="failed", error=make_response_error(failure), usage=usage
            )
        return events + self._last_event("response.failed")

    # ── Items ──

    def _open_item(self, prefix: str, request: int) -> bytes:
        """Begin an item, after the one that is open."""
        events = self._close_item("completed")
        self._index += 1
        self._item_id = f"{prefix}_{self._run_id}_{request}"
        return events

    def _write_text(self, text: str, request: int, prefix: str = "msg") -> bytes:
        opened = b""
        if self._message is None:
            opened = self._open_item(prefix, request)
            self._message = []
            started = structs.replace(make_output_message(self._item_id, "", "in_progress"), content=())
            opened += self._event("response.output_item.added", item=started, output_index=self._index)
            opened += self._item_event("response.content_part.added", content_index=0, part=OutputText(""))
        self._message.append(text)
        return opened + self._delta("response.output_text.delta", text, content_index=0, logprobs=())

    def _write_reasoning(self, text: str, request: int) -> bytes:
        opened = b""
        if self._thought is None:
            opened = self._open_item("rs", request)
            self._thought = []
            started = ReasoningItem(self._item_id, (), "in_progress")
            opened += self._event("response.output_item.added", item=started, output_index=self._index)
            part = SummaryText("")
            opened += self._item_event("response.reasoning_summary_part.added", summary_index=0, part=part)
        self._thought.append(text)
        return opened + self._delta("response.reasoning_summary_text.delta", text, summary_index=0)

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
        self._items.append(item)
        return events + self._event("response.output_item.done", item=item, output_index=self._index)

    def _write_call(self, asked: CallAsked) -> bytes:
        """Write a call of one of the client's tools. It comes as a whole: it was checked and recorded first."""
        events = self._open_item("fc", asked.sequence)
        call_id, kind = make_call_id(CallPlace(self._run_id, asked.sequence)), self._kinds.get(asked.name)
        if kind == "local_shell":
            item = ShellCallItem(self._item_id, call_id, _read_shell_action(asked.arguments), "completed")
            started = structs.replace(item, status="in_progress")
        elif kind == "custom":
            item = CustomCallItem(self._item_id, call_id, asked.name, read_freeform(asked.arguments), "completed")
            started = structs.replace(item, input="", status="in_progress")
        else:
            item = FunctionCallItem(self._item_id, call_id, asked.name, asked.arguments or "{}", "completed")
            started = structs.replace(item, arguments="", status="in_progress")
        events += self._event("response.output_item.added", item=started, output_index=self._index)
        if isinstance(item, FunctionCallItem):
            name, whole = "response.function_call_arguments", item.arguments
            events += self._delta(f"{name}.delta", whole)
            events += self._item_event(f"{name}.done", arguments=whole, name=item.name)
        elif isinstance(item, CustomCallItem):
            name, whole = "response.custom_tool_call_input", item.input
            events += self._delta(f"{name}.delta", whole) if whole else b""
            events += self._item_event(f"{name}.done", input=whole)
        self._items.append(item)
        return events + self._event("response.output_item.done", item=item, output_index=self._index)

    def _complete_answer(self, text: str, status: ItemStatus) -> None:
        """Let the answer of the run be the text of the last message."""
        for place, item in enumerate(self._items):
            if isinstance(item, OutputMessage):
                self._items[place] = make_output_message(item.id, text, status)

    # ── Events ──

    def _item_event(self, kind: str, **more: Any) -> bytes:
        return self._event(kind, item_id=self._item_id, output_index=self._index, **more)

    def _delta(self, kind: str, text: str, **more: Any) -> bytes:
        """Write a piece of text, without what the client has of it."""
        first = self._number
        self._number += len(text) - 1
        missed = text[max(0, self._starting_after - first) :]
        return self._item_event(kind, delta=missed, **more)

    def _last_event(self, kind: str) -> bytes:
        """Write the event with the response, which every reader gets."""
        self._starting_after = -1
        self.is_done = True
        return self._event(kind, response=self.response)

    def _event(self, kind: str, **more: Any) -> bytes:
        self._number += 1
        if self._number <= self._starting_after:
            return b""
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(StreamEvent(kind, self._number, **more)))


def read_freeform(arguments: str) -> str:
    """Return the input of a custom tool from the arguments of its call."""
    try:
        return _freeform.decode(arguments).input
    except (msgspec.DecodeError, UnicodeError):
        return arguments


def _read_shell_action(arguments: str) -> ShellAction:
    """Return the command of a call of the local shell."""
    try:
        asked = _shell.decode(arguments)
    except (msgspec.DecodeError, UnicodeError):
        return ShellAction(())
    return ShellAction(asked.command, timeout_ms=asked.timeout_ms, working_directory=asked.working_directory)
