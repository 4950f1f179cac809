"""Time and names, which the pure parts never read for themselves."""

from typing import Protocol

from treadle.domain.ids import Instant, Prefix


class Clock(Protocol):
    def now(self) -> Instant:
        """The time of day. Between two processes, and for a clock that follows the machine's, it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring durations."""
        ...


class Ids(Protocol):
    def __call__(self, prefix: Prefix) -> str:
        """A new id: the prefix, an underscore and a UUIDv7. Ids made later sort later."""
        ...
