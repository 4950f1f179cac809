"""Time and ids. Pure code never reads them; callers pass them in."""

from typing import Protocol

from treadle.domain.ids import Instant, Prefix


class Clock(Protocol):
    def now(self) -> Instant:
        """Return the time of day. It may jump, and differs between processes."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for measuring durations."""
        ...


class Ids(Protocol):
    def __call__(self, prefix: Prefix) -> str:
        """Return a new id: the prefix, an underscore and a UUIDv7. Later ids sort after earlier ones."""
        ...
