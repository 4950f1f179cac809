"""The memory of all stream readers of a listener, bounded together.

A reader holds what it has not received: the events that wait for it, and what is being sent to it. An event that
several readers hold is stored once and counts once. When all readers together hold too much, those that hold most
are disconnected, and they continue after the last event that they received. A single event, or another piece of a
stream, that is larger than the limit is held besides: its reader would never get past it otherwise."""

from collections.abc import Callable, Sequence

from treadle.domain.envelope import LARGE_EVENT_BYTES, Event
from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES

EVENT_BYTES = 400
"""Memory of an event besides its data."""
COPIES = 2
"""An event has its data twice: decoded, and as the bytes that are sent."""


class ReaderMemory:
    """What one reader holds. Implements `engine.subscription.MemoryAccount`."""

    def __init__(self, total: "StreamMemory") -> None:
        self._total = total
        self.disconnect: Callable[[], None] = _do_nothing
        """Ends the stream. It must not block."""
        self.held = 0
        """Bytes, including those that other readers hold too."""
        self.large: list[Event] = []
        """The large events among them."""
        self.piece_bytes = 0
        """Bytes of the piece that is being sent, if it is not an event."""
        self.is_open = True

    def hold(self, size: int) -> None:
        """Hold this many more bytes, or fewer if the number is negative."""
        if self.is_open:
            self.held += size
            self._total.add(self, size)

    def hold_piece(self, size: int) -> None:
        """Hold a piece of the stream while it is being sent."""
        self.piece_bytes = size
        self.hold(size)

    def release_piece(self) -> None:
        self.hold(-self.piece_bytes)
        self.piece_bytes = 0

    @property
    def largest(self) -> int:
        """Bytes of the largest thing among what it holds."""
        return max(self.piece_bytes, *map(_measure, self.large), 0)

    def hold_events(self, events: Sequence[Event]) -> None:
        """Hold events. A large event that another reader holds costs nothing more."""
        if not self.is_open:
            return
        alone = 0
        for event in events:
            size = _measure(event)
            self.held += size
            if len(event.raw) >= LARGE_EVENT_BYTES:
                self.large.append(event)
                size = self._total.share(event, size)
            alone += size
        self._total.add(self, alone)

    def release_events(self, events: Sequence[Event]) -> None:
        if not self.is_open:
            return
        alone = 0
        for event in events:
            size = _measure(event)
            self.held -= size
            if len(event.raw) >= LARGE_EVENT_BYTES:
                del self.large[next(at for at, held in enumerate(self.large) if held is event)]
                size = self._total.unshare(event, size)
            alone += size
        self._total.add(self, -alone)

    def close(self) -> None:
        """Forget the reader and what it still holds."""
        self._total.remove(self)


class StreamMemory:
    """The memory of all readers."""

    def __init__(self, limit: int = DEFAULT_STREAM_MEMORY_BYTES) -> None:
        self._limit = limit
        self._readers: set[ReaderMemory] = set()
        self._holders: dict[int, int] = {}
        """How often each large event is held, by its identity."""
        self.held = 0
        """Bytes."""
        self.disconnected = 0
        """Number of readers that were disconnected because all of them held too much."""

    def share(self, event: Event, size: int) -> int:
        """Note that a large event is held once more. Return its size if it was not held before, and 0 otherwise."""
        holders = self._holders.get(id(event), 0)
        self._holders[id(event)] = holders + 1
        return 0 if holders else size

    def unshare(self, event: Event, size: int) -> int:
        """Note that a large event is held once less. Return its size if it is held no more, and 0 otherwise."""
        holders = self._holders.pop(id(event)) - 1
        if not holders:
            return size
        self._holders[id(event)] = holders
        return 0

    def remove(self, reader: ReaderMemory) -> None:
        self._readers.discard(reader)
        self.held -= reader.held
        for event in reader.large:
            size = _measure(event)
            self.held += size - self.unshare(event, size)
        reader.held, reader.large, reader.piece_bytes, reader.is_open = 0, [], 0, False

    def add(self, reader: ReaderMemory, size: int) -> None:
        """Count what a reader holds, and disconnect the slowest readers if that is too much."""
        self._readers.add(reader)
        self.held += size
        while self.held > self._limit:
            slowest = max(self._readers, key=lambda reader: reader.held)
            largest = slowest.largest
            if largest > self._limit and self.held - largest <= self._limit:
                return
            self.remove(slowest)
            self.disconnected += 1
            slowest.disconnect()


def _measure(event: Event) -> int:
    """Return the bytes that an event occupies."""
    return COPIES * len(event.raw) + EVENT_BYTES


def _do_nothing() -> None:
    """Stand for the end of a stream that has not started."""
