"""Turns the changes of a run's transcript into the updates that an editor shows."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from acp.helpers import image_block, start_tool_call, text_block, update_tool_call, update_user_message
from acp.schema import Cost, StopReason, UsageUpdate
from pydantic import BaseModel

from treadle.domain.code_fences import find_open_fence
from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    Change,
    ChildItem,
    EndItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    MessageItem,
    NoteItem,
    PlanItem,
    RunTotals,
    TextAppended,
    ThinkingItem,
)
from treadle.operations.transcripts import RunTranscript
from treadle.surfaces.acp.tool_view import (
    KINDS,
    PLAN_TOOL,
    show_plan,
    show_result,
    text_content,
    view_call,
)
from treadle.surfaces.acp.tool_view import fence as fence_text

ANSWER, THOUGHT = "agent_message_chunk", "agent_thought_chunk"
PROGRESS_SECONDS = 0.25
"""The output of a call in progress is sent at most this often: each update repeats it."""
MAX_PROGRESS_CHARACTERS = 8_000
LIMITS: dict[str, StopReason] = {"max_steps": "max_turn_requests", "truncated": "max_tokens"}
PARKED = ("unavailable", "quota", "budget")


class TextPiece(NamedTuple):
    """A piece of a message."""

    kind: str
    message_id: str
    text: str


Update = TextPiece | BaseModel


class _ShownCall:
    """A call that the editor shows."""

    def __init__(self, call: CallItem) -> None:
        self.call = call
        self.output = ""
        """The end of what it has printed so far."""
        self.shown_at = 0.0
        self.children: dict[RunId, str] = {}


class RunUpdates:
    """Reads the events of one run, past ones first."""

    def __init__(self, run_id: RunId, folder: Path, cost_before: float = 0.0) -> None:
        self.run_id = run_id
        self.end: EndItem | None = None
        self.is_past = False
        """The events happened before the session was opened here."""
        self._transcript = RunTranscript(run_id)
        self._folder = folder
        self._cost_before = cost_before
        self._totals = RunTotals()
        """The totals that were shown."""
        self._sent: dict[str, TextPiece] = {}
        """The text of each answer and of reasoning that is being written, as far as it was sent."""
        self._dropped: set[str] = set()
        """Live items that were replaced, unless their reply comes next."""
        self._calls: dict[str, _ShownCall] = {}
        """Open calls, by key."""
        self._answer = ""
        """The text of the latest reply that was sent."""

    @property
    def sequence(self) -> int:
        return self._transcript.sequence

    @property
    def totals(self) -> RunTotals:
        return self._transcript.totals

    def apply(self, event: Event) -> Sequence[Change]:
        """Apply an event of the run, and return what it changed."""
        return self._transcript.apply(event)

    def show(self, changes: Sequence[Change], *, is_own: bool = False) -> Iterator[Update]:
        """Yield the updates for changes. A message that this editor has sent is not repeated."""
        for change in changes:
            match change:
                case ItemAdded(MessageItem() as item):
                    if not is_own:
                        yield from _show_message(item)
                case ItemAdded(EndItem() as item):
                    self.end = item
                case ItemAdded(item) | ItemChanged(item):
                    yield from self._show_item(item)
                case TextAppended():
                    yield from self._append(change)
                case LiveReplaced(items):
                    self._dropped |= self._sent.keys() - {item.key for item in items}
                    for item in items:
                        yield from self._show_item(item)
                case _:
                    pass
        yield from self._void_dropped_text()
        yield from self._show_totals()
        if self.end is not None and changes:
            yield from self._show_end(self.end)

    def _show_item(self, item: Item) -> Iterator[Update]:
        match item:
            case AnswerItem(source="command", text=text):
                yield self.make_note(text)
            case AnswerItem() | ThinkingItem():
                yield from self._send_text(item)
            case CallItem() if item.state != "writing":
                yield from self._show_call(item)
            case PlanItem(steps=steps):
                yield show_plan(steps)
            case ChildItem():
                yield from self._show_child(item)
            case NoteItem(topic="context_compacted"):
                yield self.make_note("The earlier conversation was replaced with a summary.", THOUGHT)
            case NoteItem(topic="memory_recalled", text=text, details=details):
                yield self.make_note(f"{text}\n\n{fence_text(details)}\n\n", THOUGHT)
            case _:
                pass

    # ── Texts ──

    def _send_text(self, item: AnswerItem | ThinkingItem) -> Iterator[Update]:
        """Send what is new of a text. A reply that differs from what was sent of it is not sent again."""
        self._dropped.discard(item.key)
        kind = ANSWER if isinstance(item, AnswerItem) else THOUGHT
        sent = self._sent.get(item.key) or TextPiece(kind, f"{self.run_id}:{item.sequence}", "")
        if item.text.startswith(sent.text):
            yield from self._send(item.key, sent, item.text[len(sent.text) :])
        if item.state != "writing":
            self._sent.pop(item.key, None)

    def _append(self, change: TextAppended) -> Iterator[Update]:
        if change.field == "output":
            yield from self._show_progress(change)
        elif (sent := self._sent.get(change.key)) is not None:
            yield from self._send(change.key, sent, change.text[max(0, len(sent.text) - change.offset) :])

    def _send(self, key: str, sent: TextPiece, news: str) -> Iterator[Update]:
        self._sent[key] = sent = sent._replace(text=sent.text + news)
        if news:
            if sent.kind == ANSWER:
                self._answer = sent.text
            yield sent._replace(text=news)

    def _void_dropped_text(self) -> Iterator[Update]:
        """Mark an answer that was sent in part as void: an editor cannot remove it."""
        dropped = [self._sent.pop(key) for key in self._dropped]
        self._dropped.clear()
        is_cancelled = self.end is not None and self.end.outcome == "cancelled"
        for piece in dropped:
            if piece.kind == ANSWER and piece.text and (self.end is None or is_cancelled):
                reason = "the run was cancelled" if is_cancelled else self.totals.failure.rstrip(".")
                why = f": {reason}" if reason else ""
                text = f"\n\n*The reply was cut off{why}. It starts again.*\n\n"
                yield piece._replace(text=self._end_code_block(text))

    def _end_code_block(self, text: str) -> str:
        """Return a text that follows the reply. If the reply left a code block open, the text begins with its end:
        editors draw both as one message."""
        fence, self._answer = find_open_fence(self._answer), ""
        return text if fence is None else f"\n{fence.marks}\n\n{text}"

    def make_note(self, text: str, kind: str = ANSWER) -> TextPiece:
        """Return a message of Treadle itself."""
        if kind == ANSWER:
            text = self._end_code_block(text)
        return TextPiece(kind, f"{self.run_id}:note:{self.sequence}", text)

    # ── The state ──

    def _show_totals(self) -> Iterator[Update]:
        """Show what the run has used after each model call, and what it waits for."""
        before, now = self._totals, self.totals
        self._totals = now
        if now.model_calls != before.model_calls and now.context_window:
            total = self._cost_before + (now.tree_cost or 0.0)
            cost = Cost(amount=total, currency="USD") if total else None
            used, size = now.context_tokens, now.context_window
            yield UsageUpdate(session_update="usage_update", used=used, size=size, cost=cost)
        if now.waiting_for == before.waiting_for:
            return
        match now.waiting_for:
            case "retry" | "breaker":
                yield self.make_note(f"Waiting for the model: {now.detail}\n\n", THOUGHT)
            case "interrupted":
                yield self.make_note("*Interrupted. The next message continues the run.*")
            case str() as reason if reason in PARKED:
                yield self.make_note(f"*The run waits ({reason}): {now.detail}*")
            case _:
                pass

    def _show_end(self, end: EndItem) -> Iterator[Update]:
        if end.status != "completed" and end.outcome != "cancelled":
            yield self.make_note(f"*The run ended ({end.outcome.replace('_', ' ')}): {self.explain_end()}*")
        elif end.text.strip() and end.outcome != "cancelled":
            yield self.make_note(end.text)
        if end.unverified_claim:
            yield self.make_note(f"\n\n*Not verified by any tool call: {end.unverified_claim}*")

    def explain_end(self) -> str:
        """Return why the run ended and how to continue."""
        assert self.end is not None
        parts = [f"{part.rstrip('.')}." for part in (self.end.reason, self.end.next) if part]
        return " ".join(parts) or f"{self.end.outcome}."

    # ── Calls ──

    def _make_id(self, call: CallItem) -> str:
        return f"{self.run_id}:{call.call_id}"

    def _show_call(self, call: CallItem) -> Iterator[Update]:
        if call.name == PLAN_TOOL and call.state != "failed":
            return  # the plan is shown instead
        shown = self._calls.get(call.key)
        if shown is None:
            shown = self._calls[call.key] = _ShownCall(call)
            view = view_call(call.name, call.arguments, self._folder, is_past=self.is_past)
            yield start_tool_call(
                self._make_id(call),
                view.title,
                kind=view.kind,
                status="pending",
                content=view.content or None,
                locations=view.locations or None,
                raw_input=view.raw_input,
            )
        before, shown.call = shown.call, call
        if call.is_final:
            yield from self._close(call)
        elif call.state == "running" and before.state != "running":
            yield self._start(call, before)

    def _start(self, call: CallItem, before: CallItem) -> Update:
        if call.arguments == before.arguments:
            return update_tool_call(self._make_id(call), status="in_progress")
        view = view_call(call.name, call.arguments, self._folder, is_past=self.is_past)  # a reviewer changed them
        return update_tool_call(
            self._make_id(call),
            status="in_progress",
            title=view.title,
            kind=view.kind,
            content=view.content or None,
            locations=view.locations or None,
            raw_input=view.raw_input,
        )

    def _show_progress(self, change: TextAppended) -> Iterator[Update]:
        shown = self._calls.get(change.key)
        if shown is None:
            return
        shown.output = (shown.output + change.text)[-MAX_PROGRESS_CHARACTERS:]
        now = time.monotonic()
        if now - shown.shown_at >= PROGRESS_SECONDS:
            shown.shown_at = now
            content = [text_content(fence_text(shown.output))]
            yield update_tool_call(self._make_id(shown.call), status="in_progress", content=content)

    def _close(self, call: CallItem) -> Iterator[Update]:
        if call.state == "denied" and call.error is None:
            return  # its result follows
        if self._calls.pop(call.key, None) is None:
            return
        is_failed = call.state != "done"
        if is_failed and not call.result:  # the end of the run closed it
            yield update_tool_call(self._make_id(call), status="failed", kind=KINDS.get(call.name))
            return
        is_edit = KINDS.get(call.name) == "edit" and not is_failed
        yield update_tool_call(
            self._make_id(call),
            status="failed" if is_failed else "completed",
            content=None if is_edit else show_result(call.result, call.images),  # a diff stays
            raw_output=call.result if is_edit else None,
        )

    def _show_child(self, child: ChildItem) -> Iterator[Update]:
        shown = next((each for each in self._calls.values() if each.call.call_id == child.call_id), None)
        if shown is None:
            return
        shown.children[child.child_run_id] = f"{child.agent}: {_describe_child(child, shown.children)}"
        content = text_content("\n".join(f"- {each}" for each in shown.children.values()))
        yield update_tool_call(self._make_id(shown.call), status="in_progress", content=[content])


def _show_message(item: MessageItem) -> Iterator[Update]:
    yield update_user_message(text_block(item.text))
    for image in item.images:
        yield update_user_message(image_block(image.data, image.media_type))


def _describe_child(child: ChildItem, known: dict[RunId, str]) -> str:
    if child.state == "ended":
        return child.outcome or "ended"
    if child.waiting_for:
        return f"waits ({child.waiting_for})"
    return "running" if child.child_run_id in known else "started"


def find_stop_reason(updates: RunUpdates) -> StopReason | None:
    """Return why the turn of a run stopped; None if the run failed, which is an error."""
    end = updates.end
    assert end is not None
    if end.outcome == "cancelled":
        return "cancelled"
    if end.outcome == "refused":
        return "refusal"
    return "end_turn" if end.status == "completed" else LIMITS.get(end.outcome)
