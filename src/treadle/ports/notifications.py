"""The line between processes that work on one database: what each tells the others, and what it hears of them.

All of it is a hint that may be lost or late. The truth is in the journal."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.ids import RunId


class Changed(Struct, frozen=True, gc=False):
    """A run to which another process has added something."""

    run_id: RunId
    sequence: int
    """Of the last event."""
    delivered: bool = False
    """It comes from somebody other than the owner of the run, who must be told."""


class NotificationListener(Protocol):
    """Who is told, on the event loop. Never blocks."""

    def on_changed(self, runs: Sequence[Changed]) -> None: ...

    def on_message(self, message: bytes) -> None:
        """What another process has to say to all."""
        ...

    def on_missed(self) -> None:
        """The line is up, again or at last: whatever was said before was not heard."""
        ...


class NotificationChannel(Protocol):
    async def open(self, listener: NotificationListener) -> None:
        """Listen until it is closed, whatever becomes of the line meanwhile."""
        ...

    async def send(self, messages: Sequence[bytes]) -> None:
        """Say this to all others, in order. What is said while the line is down is lost."""
        ...

    async def positions(self, run_ids: Sequence[RunId]) -> Sequence[Changed]:
        """How far those of these runs have come that are there, also while the line is down."""
        ...

    async def close(self) -> None: ...
