"""The items of a transcript in order, and the changes since they were read last."""

from bisect import insort

from treadle.domain.transcript import Change, Item, ItemAdded, ItemChanged

Order = tuple[int, int, str]


class ItemStore:
    """Items by key, in the order of their places."""

    def __init__(self) -> None:
        self.sequence = 0
        """The last durable event that was applied."""
        self._items: dict[str, Item] = {}
        self._order: list[Order] = []
        self._changed_at: dict[str, int] = {}
        """The durable event that changed each item last."""
        self._changes: list[Change] = []

    def find(self, key: str) -> Item | None:
        return self._items.get(key)

    def put(self, item: Item, is_shown: bool = False) -> None:
        """Add an item, or replace the one with its key. `is_shown` says that readers have it as a live item."""
        if item.key in self._items or is_shown:
            self._changes.append(ItemChanged(item))
        else:
            self._changes.append(ItemAdded(item))
        self._store(item)

    def note(self, change: Change) -> None:
        """Note a change of something that is not stored here."""
        self._changes.append(change)

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call."""
        taken, self._changes = self._changes, []
        return taken

    def _store(self, item: Item) -> None:
        if item.key not in self._items:
            insort(self._order, (item.sequence, item.part, item.key))
        self._items[item.key] = item
        self._changed_at[item.key] = self.sequence

    def list_items(self) -> list[Item]:
        return [self._items[key] for _, _, key in self._order]

    def list_changed(self, after: int) -> list[Item]:
        """Return the items that an event after this one has changed, in their order."""
        if after <= 0:
            return self.list_items()
        return [self._items[key] for _, _, key in self._order if self._changed_at[key] > after]
