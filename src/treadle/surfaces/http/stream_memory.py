"""The memory of all stream readers of a listener, bounded together.

A reader holds what it has not read: its queue, and what is being sent to it. When all of them together hold too
much, those that hold most are disconnected, and they continue after the last event that they received."""

from collections.abc import Callable

from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES


class ReaderMemory:
    """What one reader holds. Implements `engine.subscription.MemoryAccount`."""

    def __init__(self, total: "StreamMemory") -> None:
        self._total = total
        self.disconnect: Callable[[], None] = _do_nothing
        """Ends the stream. It must not block."""
        self.held = 0
        """Bytes."""
        self.is_open = True

    def hold(self, size: int) -> None:
        """Hold this many more bytes, or fewer if the number is negative."""
        if self.is_open:
            self.held += size
            self._total.add(self, size)

    def close(self) -> None:
        """Forget the reader and what it still holds."""
        self._total.remove(self)


class StreamMemory:
    """The memory of all readers."""

    def __init__(self, limit: int = DEFAULT_STREAM_MEMORY_BYTES) -> None:
        self._limit = limit
        self._readers: set[ReaderMemory] = set()
        self.held = 0
        self.disconnected = 0
        """Number of readers that were disconnected because all of them held too much."""

    def remove(self, reader: ReaderMemory) -> None:
        self._readers.discard(reader)
        self.held -= reader.held
        reader.held, reader.is_open = 0, False

    def add(self, reader: ReaderMemory, size: int) -> None:
        """Count what a reader holds, and disconnect the slowest readers if that is too much."""
        self._readers.add(reader)
        self.held += size
        while self.held > self._limit:
            slowest = max(self._readers, key=lambda reader: reader.held)
            if slowest.held >= self.held:
                return  # a reader alone may hold one large event: it would never get past it otherwise
            self.remove(slowest)
            self.disconnected += 1
            slowest.disconnect()


def _do_nothing() -> None:
    """Stand for the end of a stream that has not started."""
