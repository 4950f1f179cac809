"""Notifications between processes that share a database.

They are hints that may be lost or late. The journal is authoritative."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.ids import RunId


class Changed(Struct, frozen=True, gc=False, array_like=True):
    """A run that another process has appended to."""

    run_id: RunId
    sequence: int
    """Sequence of its last event."""
    delivered: bool = False
    """The event does not come from the run's owner, so the owner must be notified."""
    lacking: bool = False
    """The owner has released the run because it lacks something that the run needs. Another process may have it."""


class NotificationListener(Protocol):
    """Receives notifications on the event loop. Must not block."""

    def on_changed(self, runs: Sequence[Changed]) -> None: ...

    def on_definitions_changed(self) -> None:
        """A process has stored a version of an agent, or a shared skill."""
        ...

    def on_message(self, message: bytes) -> None:
        """Another process has sent a message to all."""
        ...

    def on_missed(self) -> None:
        """The connection is up, for the first time or again. Earlier notifications were missed."""
        ...


class NotificationChannel(Protocol):
    async def open(self, listener: NotificationListener) -> None:
        """Listen until closed, and reconnect when the connection breaks."""
        ...

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send messages to all other processes, in order. They are lost while the connection is down."""
        ...

    async def positions(self, run_ids: Sequence[RunId]) -> Sequence[Changed]:
        """Return the position of those of these runs that exist. Works while the connection is down."""
        ...

    async def close(self) -> None: ...
