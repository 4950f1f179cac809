"""Makes the events of AG-UI from the changes of a run's transcript.

A stream shows each item once. What was shown and is replaced, because another attempt of a model call wrote
something else, is corrected by a snapshot of all messages: AG-UI has no other way to take text back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

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
    PlanItem,
    QuestionItem,
    RunTotals,
    TextAppended,
    ThinkingItem,
    TotalsChanged,
    append_text,
    is_live,
)
from treadle.surfaces.http.ag_ui import events as e
from treadle.surfaces.http.ag_ui.messages import (
    find_call_name,
    find_reply_id,
    make_content,
    make_id,
    make_messages,
    make_result_id,
)

SentItem = ThinkingItem | AnswerItem | CallItem
PLAN = "plan"
"""The key of the state of an application that holds the plan of the agent."""


class TranscriptWriter:
    """The events of one stream, which shows what changes after the items that it starts with."""

    def __init__(
        self,
        items: Iterable[Item],
        totals: RunTotals,
        state: Any,
        asked: str,
        client_tools: frozenset[str],
        known_results: frozenset[str],
    ) -> None:
        self._items: dict[str, Item] = {item.key: item for item in items}
        self._shown: dict[str, str] = {}
        """The text that was sent, by the key of its item."""
        self._open: set[str] = set()
        self._answered: set[str] = set()
        """Calls whose results were sent."""
        self._children: set[str] = set()
        self._state = state
        self._asked = asked
        """The message of this client, which it has already."""
        self._client_tools = client_tools
        self._known_results = known_results
        """The ids of the calls whose results the client has."""
        self._first_totals = totals
        self.totals = totals
        self.is_outdated = False
        """The client shows what is replaced: it needs a snapshot."""
        for item in self._items.values():
            if isinstance(item, SentItem):
                self._shown[item.key] = item.arguments if isinstance(item, CallItem) else item.text
            if isinstance(item, CallItem) and item.is_final and (item.result or item.state != "denied"):
                self._answered.add(item.key)

    # ── What is known of the run ──

    @property
    def items(self) -> list[Item]:
        return sorted(self._items.values(), key=lambda item: (item.sequence, item.part))

    @property
    def end(self) -> EndItem | None:
        return next((item for item in self._items.values() if isinstance(item, EndItem)), None)

    @property
    def has_open_question(self) -> bool:
        """Return whether a call in progress asks something. The run does not wait meanwhile."""
        return any(isinstance(item, QuestionItem) and item.state == "open" for item in self._items.values())

    @property
    def messages(self) -> list[e.SnapshotMessage]:
        return make_messages([item for item in self.items if not is_live(item)], self._client_tools)

    def find_call(self, call_id: str) -> str:
        """Return the id of a call in the stream, from the id that the model gave it; empty if it is not known."""
        calls = [item for item in self._items.values() if isinstance(item, CallItem) and item.call_id == call_id]
        return make_id(calls[-1]) if calls else ""

    def make_usage(self) -> tuple[e.TokenUsage, ...]:
        """Return the tokens since this stream began."""
        before, now = self._first_totals, self.totals
        sent, received = now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens
        if not (sent or received):
            return ()
        usage = e.TokenUsage(
            provider=now.provider,
            model=now.model,
            input_tokens=sent,
            output_tokens=received,
            total_tokens=sent + received,
            cached_input_tokens=now.cache_read_tokens - before.cache_read_tokens,
        )
        return (usage,)

    # ── Events ──

    def begin(self) -> Iterator[e.AgUiEvent]:
        """Yield what a client must know of the items that the stream starts with: the plan, and the child runs."""
        plans = [item for item in self.items if isinstance(item, PlanItem)]
        if plans:
            yield from self._show_plan(plans[-1])
        for item in self.items:
            if isinstance(item, ChildItem) and item.state != "ended":
                yield from self._show_child(item)

    def apply(self, changes: Sequence[Change]) -> Iterator[e.AgUiEvent]:
        """Yield the events of changes."""
        for change in changes:
            match change:
                case ItemAdded(item) | ItemChanged(item):
                    self._items[item.key] = item
                    yield from self._show(item)
                case TextAppended(key=key):
                    if (item := self._items.get(key)) is not None:
                        item = self._items[key] = append_text(item, change)
                        yield from self._show(item)
                case LiveReplaced(items):
                    yield from self._replace_live(items)
                case TotalsChanged(totals):
                    self.totals = totals

    def close(self, *, is_suspended: bool) -> Iterator[e.AgUiEvent]:
        """Yield the ends of what is open, before the end of the stream."""
        for key in sorted(self._open):
            yield from self._end_text(self._items[key])
        for item in self.items:
            if isinstance(item, CallItem) and item.is_final and item.key in self._shown:
                yield from self._show_result(item)
        for child in sorted(self._children):
            outcome = e.SubagentOutcome("suspended" if is_suspended else "success")
            yield e.SubagentFinished(subagent_run_id=child, outcome=outcome)
        self._children.clear()

    def _replace_live(self, items: Sequence[Item]) -> Iterator[e.AgUiEvent]:
        keys = {item.key for item in items}
        for key in [key for key, item in self._items.items() if is_live(item) and key not in keys]:
            yield from self._end_text(self._items[key])
            if self._shown.pop(key, None) is not None:
                self.is_outdated = True
            del self._items[key]
        for item in items:
            self._items[item.key] = item
            yield from self._show(item)

    def _show(self, item: Item) -> Iterator[e.AgUiEvent]:
        match item:
            case ThinkingItem() | AnswerItem():
                yield from self._show_text(item, item.text)
            case CallItem():
                yield from self._show_call(item)
            case MessageItem():
                yield from self._show_message(item)
            case PlanItem():
                yield from self._show_plan(item)
            case ChildItem():
                yield from self._show_child(item)
            case EndItem(text=text) if text:
                yield e.TextMessageStart(message_id=make_id(item), role="assistant")
                yield e.TextMessageContent(message_id=make_id(item), delta=text)
                yield e.TextMessageEnd(message_id=make_id(item))
            case _:
                pass

    def _show_text(self, item: SentItem, text: str) -> Iterator[e.AgUiEvent]:
        """Yield what is new of a text, and its end if it is complete."""
        shown = self._shown.get(item.key)
        if shown is None:
            self._open.add(item.key)
            self._shown[item.key] = ""
            yield from _start(item, self._client_tools)
            shown = ""
        if text != shown and not (item.key in self._open and text.startswith(shown)):
            self.is_outdated = self.is_outdated or not (isinstance(item, CallItem) and _is_same_json(text, shown))
            self._shown[item.key] = text
        elif text != shown:
            yield _continue(item, text[len(shown) :])
            self._shown[item.key] = text
        if not is_live(item):
            yield from self._end_text(item)

    def _end_text(self, item: Item) -> Iterator[e.AgUiEvent]:
        if item.key in self._open:
            self._open.discard(item.key)
            yield from _end(item)

    def _show_call(self, call: CallItem) -> Iterator[e.AgUiEvent]:
        if not call.name:
            return  # it begins with its name
        yield from self._show_text(call, call.arguments)
        if call.is_final and (call.result or call.state != "denied"):  # the result of a denied call follows
            yield from self._show_result(call)

    def _show_result(self, call: CallItem) -> Iterator[e.AgUiEvent]:
        if call.key not in self._answered and make_id(call) not in self._known_results:
            self._answered.add(call.key)
            yield e.CallResult(
                message_id=make_result_id(call),
                tool_call_id=make_id(call),
                content=make_content(call.result, call.images),
                role="tool",
            )

    def _show_message(self, item: MessageItem) -> Iterator[e.AgUiEvent]:
        """Yield a message that came from elsewhere."""
        if item.text == self._asked:
            self._asked = ""
        elif item.key not in self._shown:
            self._shown[item.key] = item.text
            yield e.TextMessageStart(message_id=make_id(item), role="user")
            yield e.TextMessageContent(message_id=make_id(item), delta=item.text)
            yield e.TextMessageEnd(message_id=make_id(item))

    def _show_plan(self, plan: PlanItem) -> Iterator[e.AgUiEvent]:
        """Yield the plan in the state of the application, if that is an object."""
        state: Any = {} if self._state is None else self._state
        if isinstance(state, dict):
            shown = cast("dict[str, Any]", state)
            yield e.StateSnapshot(snapshot={**shown, PLAN: msgspec.to_builtins(plan.steps)})

    def _show_child(self, child: ChildItem) -> Iterator[e.AgUiEvent]:
        run_id = child.child_run_id
        if child.state != "ended":
            if run_id not in self._children:
                self._children.add(run_id)
                call = self.find_call(child.call_id)
                yield e.SubagentStarted(subagent_run_id=run_id, name=child.agent, parent_tool_call_id=call)
        elif run_id in self._children:
            self._children.discard(run_id)
            if child.status == "failed":
                message = child.reason or f"The child run ended: {child.outcome}."
                yield e.SubagentError(subagent_run_id=run_id, message=message, code=child.outcome or "failed")
            else:
                yield e.SubagentFinished(subagent_run_id=run_id, outcome=e.SubagentOutcome("success"))


def _start(item: SentItem, client_tools: frozenset[str]) -> Iterator[e.AgUiEvent]:
    match item:
        case ThinkingItem():
            yield e.ReasoningStart(message_id=make_id(item))
            yield e.ReasoningMessageStart(message_id=make_id(item), role="reasoning")
        case AnswerItem():
            yield e.TextMessageStart(message_id=make_id(item), role="assistant")
        case CallItem():
            name = find_call_name(item.name, client_tools)
            parent = find_reply_id(item)
            yield e.CallStart(tool_call_id=make_id(item), tool_call_name=name, parent_message_id=parent)


def _continue(item: SentItem, delta: str) -> e.AgUiEvent:
    match item:
        case ThinkingItem():
            return e.ReasoningMessageContent(message_id=make_id(item), delta=delta)
        case AnswerItem():
            return e.TextMessageContent(message_id=make_id(item), delta=delta)
        case CallItem():
            return e.CallArgs(tool_call_id=make_id(item), delta=delta)


def _end(item: Item) -> Iterator[e.AgUiEvent]:
    match item:
        case ThinkingItem():
            yield e.ReasoningMessageEnd(message_id=make_id(item))
            yield e.ReasoningEnd(message_id=make_id(item))
        case AnswerItem():
            yield e.TextMessageEnd(message_id=make_id(item))
        case CallItem():
            yield e.CallEnd(tool_call_id=make_id(item))
        case _:
            pass


def _is_same_json(one: str, other: str) -> bool:
    """Return whether two texts stand for the same arguments."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError:
        return False
