"""The streams that are open behind one door, with one clock for all of their heartbeats."""

import asyncio
from typing import Protocol

HEARTBEAT_SECONDS = 15.0


class Open(Protocol):
    """A stream that is open."""

    @property
    def comes_again(self) -> bool:
        """Whether its reader does when it ends, and goes on where it was."""
        ...

    def cut(self) -> None: ...

    def beat(self) -> None:
        """Send a comment, so that whoever is between knows that somebody is there."""
        ...


class Streams:
    def __init__(self) -> None:
        self._open: set[Open] = set()
        self._beating: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        """Set when the door is about to be closed."""

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: Open) -> None:
        self._open.add(stream)
        if self.closed.is_set():  # it was asked for before the door was
            self._end(stream)
        elif self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="treadle-heartbeats")

    def remove(self, stream: Open) -> None:
        self._open.discard(stream)

    async def close(self) -> None:
        """End those whose readers come again, and go on where they were. The others have until the door is shut:
        what breaks off then is seen to break off."""
        self.closed.set()
        if self._beating is not None:
            self._beating.cancel()
        for stream in tuple(self._open):
            self._end(stream)

    def _end(self, stream: Open) -> None:
        if stream.comes_again:
            stream.cut()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for stream in tuple(self._open):
                stream.beat()
