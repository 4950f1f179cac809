"""A copy of a transcript, kept by applying its changes. Clients of a stream of changes need nothing else."""

from collections.abc import Iterable
from typing import assert_never

from treadle.domain.transcript import (
    Change,
    Item,
    ItemAdded,
    ItemChanged,
    LiveReplaced,
    RunTotals,
    TextAppended,
    TotalsChanged,
    append_text,
    is_live,
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
            case TextAppended(key=key):
                if key in self._items:
                    self._items[key] = append_text(self._items[key], change)
            case LiveReplaced(items):
                self._items = {key: item for key, item in self._items.items() if not is_live(item)}
                self._items |= {item.key: item for item in items}
            case TotalsChanged(totals):
                self.totals = totals
            case _:
                assert_never(change)
