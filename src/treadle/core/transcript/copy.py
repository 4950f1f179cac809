"""A copy of a transcript, kept by applying its changes. Clients of a stream of changes need nothing else."""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from treadle.domain.transcript import (
    AnswerItem,
    CallItem,
    Change,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    RunTotals,
    TextAppended,
    ThinkingItem,
    TotalsChanged,
)


class TranscriptCopy:
    """The items and totals after all changes that were applied."""

    def __init__(self, items: Iterable[Item] = (), totals: RunTotals | None = None) -> None:
        self._items = {item.key: item for item in items}
        self.totals = RunTotals() if totals is None else totals

    @property
    def items(self) -> list[Item]:
        """All items, in their order."""
        return sorted(self._items.values(), key=lambda item: (item.sequence, item.part, item.key))

    def apply(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case ItemAdded(item) | ItemChanged(item):
                self._items[item.key] = item
            case TextAppended():
                self._append(change)
            case LiveReplaced(items):
                self._items = {key: item for key, item in self._items.items() if not is_live(item)}
                self._items |= {item.key: item for item in items}
            case TotalsChanged(totals):
                self.totals = totals
            case _:
                assert_never(change)

    def _append(self, change: TextAppended) -> None:
        item = self._items.get(change.key)
        match item:
            case ThinkingItem() | AnswerItem() if change.field == "text":
                self._items[change.key] = replace(item, text=item.text[: change.offset] + change.text)
            case CallItem() if change.field == "arguments":
                self._items[change.key] = replace(item, arguments=item.arguments[: change.offset] + change.text)
            case CallItem() if change.field == "output":
                kept = item.output[: max(0, change.offset - item.output_start)]
                self._items[change.key] = replace(item, output=kept + change.text)
            case _:
                pass


def is_live(item: Item) -> bool:
    """Return whether the model is still writing the item."""
    return isinstance(item, ThinkingItem | AnswerItem | CallItem) and item.state == "writing"
