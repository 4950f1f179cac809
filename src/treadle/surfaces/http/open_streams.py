"""The streams that are open behind one door, with one clock for all of their heartbeats."""

import asyncio
from collections import Counter
from typing import Protocol

from treadle.domain.access import Principal
from treadle.domain.ids import TokenId

HEARTBEAT_INTERVAL_SECONDS = 15.0


class OpenStream(Protocol):
    """A stream that is open."""

    @property
    def comes_again(self) -> bool:
        """Whether its reader does when it ends, and goes on where it was."""
        ...

    def cut(self) -> None: ...

    def beat(self) -> None:
        """Send a comment, so that whoever is between knows that somebody is there."""
        ...


class OpenStreams:
    def __init__(self, most_per_token: int | None = None) -> None:
        """`most_per_token`: streams that one token may have open; None: as many as it likes."""
        self._open: set[OpenStream] = set()
        self._most_per_token = most_per_token
        self._of_token: Counter[TokenId] = Counter()
        self._beating: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        """Set when the door is about to be closed."""

    def __len__(self) -> int:
        return len(self._open)

    def is_full_for(self, principal: Principal) -> bool:
        """Whether a token has as many streams open as it may."""
        token, most = principal.token_id, self._most_per_token
        return token is not None and most is not None and self._of_token[token] >= most

    @property
    def full(self) -> str:
        return (
            f"This token has {self._most_per_token} event streams open, and may have no more. Close one, follow "
            "several runs with GET /v1/events, or raise server.streams_per_token in config.yaml."
        )

    def count(self, principal: Principal) -> None:
        """Count one more open stream of a token, until `uncount`."""
        if principal.token_id is not None:
            self._of_token[principal.token_id] += 1

    def uncount(self, principal: Principal) -> None:
        if (token := principal.token_id) is not None:
            self._of_token[token] -= 1
            if self._of_token[token] <= 0:
                del self._of_token[token]

    def add(self, stream: OpenStream) -> None:
        self._open.add(stream)
        if self.closed.is_set():  # it was asked for before the door was
            self._end(stream)
        elif self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="treadle-heartbeats")

    def remove(self, stream: OpenStream) -> None:
        self._open.discard(stream)

    async def close(self) -> None:
        """End those whose readers come again, and go on where they were. The others have until the door is shut:
        what breaks off then is seen to break off."""
        self.closed.set()
        if self._beating is not None:
            self._beating.cancel()
        for stream in tuple(self._open):
            self._end(stream)

    def _end(self, stream: OpenStream) -> None:
        if stream.comes_again:
            stream.cut()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_SECONDS)
            for stream in tuple(self._open):
                stream.beat()
