"""What a session shows: the items of its runs in their order, and how the display shows each of them."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    Change,
    ChildItem,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    NoteItem,
    TextAppended,
    append_text,
    is_live,
)
from treadle.operations.file_changes import ChangedFile


class Report(Struct, frozen=True):
    """Something that the terminal UI itself says, as Markdown, or files that it shows."""

    text: str
    files: tuple[ChangedFile, ...] = ()


class ShownItem:
    """An item of a run, or a report, and how the display shows it."""

    __slots__ = ("children", "expanded", "item", "version")

    def __init__(self, item: Item | Report) -> None:
        self.item = item
        self.version = 0
        """Counts changes."""
        self.expanded: bool | None = None
        """Whether the user opened or closed it; None: as the display decides."""
        self.children: dict[str, ChildItem] = {}
        """The child runs under a call, by key."""

    @property
    def run_id(self) -> RunId | None:
        return None if isinstance(self.item, Report) else self.item.run_id

    @property
    def is_final(self) -> bool:
        """Return whether it will not change without the user."""
        match self.item:
            case CallItem() as call:
                return call.is_final
            case NoteItem(topic="llm_retry", wake_at=wake_at):
                return wake_at is None
            case Report():
                return True
            case item:
                return not is_live(item)


def list_calls(items: Iterable[ShownItem]) -> list[CallItem]:
    """Return the calls among items."""
    return [shown.item for shown in items if isinstance(shown.item, CallItem)]


class SessionTranscript:
    """The items of a session. `changed` is called for every change, with the item or None for all of them."""

    def __init__(self, changed: Callable[[ShownItem | None], None] = lambda item: None) -> None:
        self.items: list[ShownItem] = []
        self._known: dict[tuple[RunId, str], ShownItem] = {}
        """The items of runs, by run and key. A child run is part of the call that started it."""
        self._calls: dict[tuple[RunId, str], ShownItem] = {}
        self._changed = changed

    def report_files(self, files: tuple[ChangedFile, ...]) -> None:
        """Add changed files."""
        self.items.append(ShownItem(Report("", files)))
        self._changed(self.items[-1])

    def report(self, text: str) -> None:
        """Add a report."""
        self.items.append(ShownItem(Report(text)))
        self._changed(self.items[-1])

    def apply(self, run_id: RunId, changes: Sequence[Change]) -> None:
        """Apply changes of a run's transcript."""
        for change in changes:
            match change:
                case ItemAdded(item) | ItemChanged(item):
                    self._put(item)
                case TextAppended(key=key) if (shown := self._known.get((run_id, key))) is not None:
                    if not isinstance(shown.item, Report):
                        shown.item = append_text(shown.item, change)
                        self.change(shown)
                case LiveReplaced(items):
                    self._remove_live({item.key for item in items})
                    for item in items:
                        self._put(item)
                case _:
                    pass

    def change(self, shown: ShownItem) -> None:
        """Report that an item has changed."""
        shown.version += 1
        self._changed(shown)

    def prepend(self, items: Iterable[Item]) -> None:
        """Add older items."""
        later, self.items = self.items, []
        for item in items:
            self._put(item, is_silent=True)
        self.items += later
        self._changed(None)

    def clear(self) -> None:
        self.items = []
        self._known.clear()
        self._calls.clear()
        self._changed(None)

    @property
    def last_answer(self) -> str | None:
        """Return the text of the latest answer of the model."""
        answers = (shown.item for shown in reversed(self.items) if isinstance(shown.item, AnswerItem))
        return next((item.text for item in answers if item.text and item.source == "model"), None)

    @property
    def calls(self) -> list[CallItem]:
        return list_calls(self.items)

    def _put(self, item: Item, *, is_silent: bool = False) -> None:
        shown = self._known.get((item.run_id, item.key))
        if isinstance(item, ChildItem):
            shown = shown or self._find_parent(item)
            if shown is not None and not isinstance(shown.item, ChildItem):
                shown.children[item.key] = item
        if shown is None:
            shown = ShownItem(item)
            self.items.insert(self._find_place(item), shown)
        elif not isinstance(item, ChildItem) or isinstance(shown.item, ChildItem):
            shown.item = item
        self._known[item.run_id, item.key] = shown
        if isinstance(item, CallItem) and item.call_id:
            self._calls[item.run_id, item.call_id] = shown
        if not is_silent:
            self.change(shown)

    def _find_parent(self, child: ChildItem) -> ShownItem | None:
        """Return the call that started a child run. That of a deeper one is the call of the child above it."""
        above = child.key.rpartition(".")[0]
        return self._calls.get((child.run_id, child.call_id)) or self._known.get((child.run_id, above))

    def _find_place(self, item: Item) -> int:
        place = len(self.items)
        while place > 0:
            before = self.items[place - 1].item
            if isinstance(before, Report) or before.run_id != item.run_id:
                break
            if (before.sequence, before.part) <= (item.sequence, item.part):
                break
            place -= 1
        return place

    def _remove_live(self, kept: set[str]) -> None:
        gone = [
            shown
            for shown in self.items[-64:]
            if not isinstance(shown.item, Report) and is_live(shown.item) and shown.item.key not in kept
        ]
        for shown in gone:
            assert not isinstance(shown.item, Report)
            self.items.remove(shown)
            del self._known[shown.item.run_id, shown.item.key]
        if gone:
            self._changed(None)
