"""The fold of a run's events, durable and live, into the items that people see.

A reader that has applied a snapshot and the changes after it has the same items as the fold itself, whenever it
joined. Live events may be missing or repeated: the stored ones replace them."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from treadle.core.transcript.calls import CallFold
from treadle.core.transcript.children import ChildFold
from treadle.core.transcript.item_store import ItemStore
from treadle.core.transcript.notes import Note, describe_ended_wait, describe_event, describe_retry
from treadle.core.transcript.totals import TotalsFold
from treadle.core.transcript.writing import (
    ANSWER_PART,
    THINKING_PART,
    ReplyInProgress,
    make_key,
)
from treadle.domain import events as e
from treadle.domain.commands import format_command
from treadle.domain.envelope import Event
from treadle.domain.events import EventData
from treadle.domain.ids import RunId
from treadle.domain.messages import Image, Message, Text, Thinking, ToolUse
from treadle.domain.silence import is_silence
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    Change,
    EndItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    MessageItem,
    NoteItem,
    RunTotals,
    ThinkingItem,
    TotalsChanged,
)


class RunTranscript:
    """The transcript of one run. Apply its events in order; each returns the changes that it caused."""

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self._store = ItemStore()
        self._calls = CallFold(self._store)
        self._children = ChildFold(self._store)
        self._totals = TotalsFold()
        self._reply: ReplyInProgress | None = None
        self._answered_before = 0
        """Live text of earlier requests comes too late."""
        self._retry: NoteItem | None = None
        """The note about the failed attempts of the current model call."""
        self._wait: tuple[NoteItem, e.RunWaiting] | None = None
        """The note about the wait of the run, and why it waits."""
        self._compaction: NoteItem | None = None
        """The note about the summary that is being made."""
        self._answer = ("", "")
        """The key and the text of the latest answer."""
        self._step = 0
        self._part = 0

    # ── What readers get ──

    @property
    def sequence(self) -> int:
        """The last durable event that was applied."""
        return self._store.sequence

    @property
    def totals(self) -> RunTotals:
        return self._totals.totals

    @property
    def children(self) -> set[RunId]:
        """The descendants that have not ended, as far as they are known."""
        return self._children.run_ids

    @property
    def live_items(self) -> list[Item]:
        """The items of the reply that is being written."""
        return [] if self._reply is None else self._reply.items

    @property
    def items(self) -> list[Item]:
        """All items, in their order."""
        stored = [self._show(item) for item in self._store.list_items()]
        if not (live := self.live_items):
            return stored
        return sorted([*stored, *live], key=lambda item: (item.sequence, item.part))

    def list_changes(self, after: int) -> list[Change]:
        """Return the changes for a reader that has everything up to a durable event, and perhaps live text: what
        the later events changed, and one replacement of all live items."""
        changes: list[Change] = [
            (ItemAdded if item.sequence > after else ItemChanged)(self._show(item))
            for item in self._store.list_changed(after)
        ]
        if after > 0:
            changes += [ItemChanged(call) for call in self._calls.list_with_output()]
        return [*changes, LiveReplaced(tuple(self.live_items)), TotalsChanged(self.totals)]

    def _show(self, item: Item) -> Item:
        return self._calls.show_output(item) if isinstance(item, CallItem) else item

    # ── Applying events ──

    def apply(self, event: Event) -> Sequence[Change]:
        """Apply an event of the run and return what it changed."""
        before = self.totals
        if event.run_id != self.run_id:
            self._children.apply_of_child(event)
        elif not event.durable:
            self._apply_live(event)
        elif event.sequence > self.sequence:
            self._store.sequence, self._part = event.sequence, 0
            self._totals.apply(event)
            self._apply_durable(event)
        changes = self._store.take_changes()
        if self.totals is not before and self.totals != before:
            changes.append(TotalsChanged(self.totals))
        return changes

    def _apply_live(self, event: Event) -> None:
        match event.data:
            case e.Token() | e.ThinkingDelta() | e.ToolCallDelta() as data:
                self._write(event, data)
            case e.AttemptReset(request=request):
                if self._reply is not None and self._reply.request <= request:
                    self._discard_reply()
            case e.ToolCallProgress() as data:
                self._calls.add_output(data)
            case _:
                pass

    def _write(self, event: Event, data: e.Token | e.ThinkingDelta | e.ToolCallDelta) -> None:
        reply = self._reply
        if data.request < self._answered_before or (reply is not None and data.request < reply.request):
            return
        if reply is None or reply.request != data.request:
            self._discard_reply()
            reply = self._reply = ReplyInProgress(
                self.run_id, data.request, event.timestamp, self._step, self.totals.model
            )
        match data:
            case e.ThinkingDelta():
                self._totals.note_activity("thinking")
            case e.Token():
                self._totals.note_activity("answering")
            case e.ToolCallDelta():
                self._totals.note_activity("calling", data.name or reply.find_call_name(data.index))
        for change in reply.append(data):
            self._store.note(change)

    def _discard_reply(self) -> None:
        if self._reply is not None and self._reply.has_items:
            self._store.note(LiveReplaced(()))
        self._reply = None

    def _apply_durable(self, event: Event) -> None:
        if self._wait is not None and (self.totals.waiting_for is None or isinstance(event.data, e.RunWaiting)):
            self._end_wait(*self._wait)
        if (note := describe_event(event.data)) is not None:
            self._put_note(event, note)
        handle = _HANDLERS.get(type(event.data))
        if handle is not None:
            handle(self, event, event.data)

    def _put_note(self, event: Event, note: Note) -> None:
        """Add a note. One note tells of a summary: first that it is being made, then how that ended."""
        item = NoteItem(
            **self._place(event),
            topic=event.type,
            text=note.text,
            level=note.level,
            details=note.details,
            call_id=note.call_id,
            count=note.number,
            wake_at=event.data.wake_at if isinstance(event.data, e.RunWaiting) else None,
        )
        match event.data:
            case e.RunWaiting() as wait:
                self._wait = (item, wait)
            case e.CompactionStarted() | e.ContextCompacted() | e.CompactionFailed():
                begun = self._compaction
                if begun is not None:
                    item = replace(item, key=begun.key, sequence=begun.sequence, part=begun.part, at=begun.at)
                self._compaction = item if isinstance(event.data, e.CompactionStarted) else None
            case _:
                pass
        self._store.put(item)

    def _end_wait(self, note: NoteItem, wait: e.RunWaiting) -> None:
        """Put the note about a wait that is over into the past."""
        self._wait = None
        self._store.put(replace(note, text=describe_ended_wait(wait), level="info", wake_at=None))

    def _place(self, event: Event) -> dict[str, Any]:
        """Return the place of the next item that begins with an event."""
        part = self._part
        self._part += 1
        return {
            "key": make_key(event.sequence, part),
            "run_id": self.run_id,
            "sequence": event.sequence,
            "part": part,
            "at": event.timestamp,
        }

    # ── Messages ──

    def on_queued(self, event: Event, data: e.RunQueued) -> None:
        if data.command is not None:
            text = format_command(data.command)
            self._store.put(MessageItem(**self._place(event), text=text, delivery="command"))

    def on_message(self, event: Event, data: e.UserMessage) -> None:
        self._add_message(event, data.message)

    def on_steered(self, event: Event, data: e.MessageSteered) -> None:
        self._add_message(event, data.message, "interrupt" if data.mode == "interrupt" else "steer")

    def on_forked(self, event: Event, data: e.RunForked) -> None:
        if data.asked:
            self._store.put(MessageItem(**self._place(event), text=data.asked))

    def _add_message(self, event: Event, message: Message, delivery: Any = "message") -> None:
        images = tuple(part for part in message.parts if isinstance(part, Image))
        self._store.put(MessageItem(**self._place(event), text=message.text, images=images, delivery=delivery))

    def on_command(self, event: Event, data: e.CommandObeyed) -> None:
        """Show the answer of a command. The end of the run says why it was not performed."""
        if data.done:
            item = AnswerItem(**self._place(event), text=data.said, source="command")
            self._store.put(item)
            self._answer = (item.key, item.text)

    # ── Model calls ──

    def on_step(self, event: Event, data: e.StepStart) -> None:
        self._step, self._retry = data.step, None

    def on_request(self, event: Event, data: e.LlmRequest) -> None:
        self._discard_reply()
        self._step = data.step
        self._answered_before = event.sequence
        self._reply = ReplyInProgress(self.run_id, event.sequence, event.timestamp, data.step, data.model)
        self._end_countdown()

    def on_response(self, event: Event, data: e.LlmResponse) -> None:
        reply, self._reply = self._reply, None
        self._answered_before = event.sequence
        self._retry = None
        request = event.sequence if reply is None else reply.request
        live = {} if reply is None else {item.key: item for item in reply.items}
        items = self._list_reply_items(event, data, request, "" if reply is None else reply.model)
        uses = [part for part in data.parts if isinstance(part, ToolUse)]
        kept = {*(item.key for item in items), *(make_key(request, 2 + index) for index in range(len(uses)))}
        if not kept.issuperset(live):
            self._store.note(LiveReplaced(()))
            live = {}
        for item in items:
            self._store.put(item, item.key in live)
        for index, use in enumerate(uses):
            self._calls.request(use, index, request, data.step, event, make_key(request, 2 + index) in live)

    def _list_reply_items(self, event: Event, data: e.LlmResponse, request: int, model: str) -> list[Item]:
        """Return the reasoning and the text of a reply, as far as it has any."""
        text = "".join(part.text for part in data.parts if isinstance(part, Text))
        thinking = "\n\n".join(part.text for part in data.parts if isinstance(part, Thinking) and part.text)
        state = "interrupted" if data.stop == "interrupted" else "done"
        items: list[Item] = []
        if thinking.strip():
            items.append(
                ThinkingItem(
                    key=make_key(request, THINKING_PART),
                    run_id=self.run_id,
                    sequence=request,
                    part=THINKING_PART,
                    at=event.timestamp,
                    text=thinking,
                    state=state,
                    step=data.step,
                    duration_ms=data.first_token_ms,
                )
            )
        if text.strip() and not is_silence(text):
            self._answer = (make_key(request, ANSWER_PART), text)
            items.append(
                AnswerItem(
                    key=make_key(request, ANSWER_PART),
                    run_id=self.run_id,
                    sequence=request,
                    part=ANSWER_PART,
                    at=event.timestamp,
                    text=text,
                    state=state,
                    step=data.step,
                    model=model,
                )
            )
        return items

    def on_error(self, event: Event, data: e.LlmError) -> None:
        self._discard_reply()
        self._answered_before = event.sequence
        if self._retry is None:
            self._retry = NoteItem(**self._place(event), topic=event.type, text=data.message, level="warning")
        else:
            self._retry = replace(self._retry, topic=event.type, text=data.message, count=self._retry.count + 1)
        self._store.put(self._retry)

    def on_retry(self, event: Event, data: e.LlmRetry) -> None:
        if self._retry is not None:
            text = describe_retry(self._retry.text, data)
            self._retry = replace(self._retry, topic=event.type, text=text, wake_at=data.wake_at)
            self._store.put(self._retry)

    def _end_countdown(self) -> None:
        """Note that the retry is no longer in the future."""
        if self._retry is not None and self._retry.wake_at is not None:
            self._retry = replace(self._retry, wake_at=None)
            self._store.put(self._retry)

    # ── Calls, child runs and the end ──

    def on_call(self, event: Event, data: EventData) -> None:
        self._calls.apply(event)

    def on_spawn(self, event: Event, data: e.AgentSpawn) -> None:
        self._calls.apply(event)
        self._children.apply(event)

    def on_child(self, event: Event, data: EventData) -> None:
        self._children.apply(event)

    def on_waiting(self, event: Event, data: e.RunWaiting) -> None:
        if data.reason == "interrupted":
            self._discard_reply()

    def on_end(self, event: Event, data: e.RunEnd) -> None:
        self._discard_reply()
        self._end_countdown()
        if self._retry is not None and self._retry.text in data.reason:
            self._store.put(replace(self._retry, level="detail"))  # the end says it
        self._calls.close_all(is_cancelled=data.outcome == "cancelled")
        self._children.close_all()
        answer_key, text = self._answer
        is_shown = bool(data.text.strip()) and data.text.strip() == text.strip()
        self._store.put(
            EndItem(
                **self._place(event),
                status=data.status,
                outcome=data.outcome,
                text="" if data.silent or is_shown else data.text,
                answer_key=answer_key if is_shown else "",
                reason=data.reason,
                next=data.next,
                unverified_claim=data.unverified_claim,
                silent=data.silent,
                score=data.score,
                diagnosis=data.diagnosis,
            )
        )


_HANDLERS: Final[dict[type[EventData], Callable[[RunTranscript, Event, Any], None]]] = {
    e.RunQueued: RunTranscript.on_queued,
    e.UserMessage: RunTranscript.on_message,
    e.MessageSteered: RunTranscript.on_steered,
    e.RunForked: RunTranscript.on_forked,
    e.CommandObeyed: RunTranscript.on_command,
    e.StepStart: RunTranscript.on_step,
    e.LlmRequest: RunTranscript.on_request,
    e.LlmResponse: RunTranscript.on_response,
    e.LlmError: RunTranscript.on_error,
    e.LlmRetry: RunTranscript.on_retry,
    e.ToolCallStart: RunTranscript.on_call,
    e.ToolCallEnd: RunTranscript.on_call,
    e.ToolCallError: RunTranscript.on_call,
    e.ToolCallBlocked: RunTranscript.on_call,
    e.HookBlocked: RunTranscript.on_call,
    e.ApprovalRequested: RunTranscript.on_call,
    e.ApprovalDecided: RunTranscript.on_call,
    e.ApprovalExpired: RunTranscript.on_call,
    e.ClarifyRequested: RunTranscript.on_call,
    e.ClarifyAnswered: RunTranscript.on_call,
    e.ClientCallRequested: RunTranscript.on_call,
    e.AgentSpawn: RunTranscript.on_spawn,
    e.AgentEnd: RunTranscript.on_child,
    e.AgentWaiting: RunTranscript.on_child,
    e.AgentAnswered: RunTranscript.on_child,
    e.RunWaiting: RunTranscript.on_waiting,
    e.RunEnd: RunTranscript.on_end,
}
