"""The open streams of one listener, with one heartbeat timer for all of them."""

import asyncio
from collections import Counter
from typing import Protocol

from treadle.domain.access import Principal
from treadle.domain.ids import TokenId
from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES
from treadle.surfaces.http.stream_memory import StreamMemory

HEARTBEAT_INTERVAL_SECONDS = 15.0


class OpenStream(Protocol):
    """An open event stream."""

    @property
    def will_reconnect(self) -> bool:
        """Return whether the reader reconnects when the stream ends, and continues where it stopped."""
        ...

    def cut(self) -> None: ...

    def beat(self) -> None:
        """Send a comment, so that proxies keep the connection open."""
        ...


class StreamCounts(Protocol):
    """Counts the open streams of tokens, in all processes that share a port."""

    def count(self, token: TokenId) -> int: ...

    def add(self, token: TokenId, number: int) -> None:
        """Add to the streams that this process has open for a token."""
        ...


class OwnStreamCounts:
    """Implements `StreamCounts` for a process that shares its port with no other."""

    def __init__(self) -> None:
        self._counts: Counter[TokenId] = Counter()

    def count(self, token: TokenId) -> int:
        return self._counts[token]

    def add(self, token: TokenId, number: int) -> None:
        self._counts[token] += number
        if self._counts[token] <= 0:
            del self._counts[token]


class OpenStreams:
    def __init__(
        self,
        max_per_token: int | None = None,
        memory_bytes: int = DEFAULT_STREAM_MEMORY_BYTES,
        counts: StreamCounts | None = None,
    ) -> None:
        """`max_per_token`: the most streams that one token may have open; None: no limit."""
        self.memory = StreamMemory(memory_bytes)
        self._open: set[OpenStream] = set()
        self._max_per_token = max_per_token
        self._counts = counts or OwnStreamCounts()
        self._beating: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        """Set when the listener is about to close."""

    def __len__(self) -> int:
        return len(self._open)

    def is_full_for(self, principal: Principal) -> bool:
        """Return whether a token has as many streams open as it may."""
        token, limit = principal.token_id, self._max_per_token
        return token is not None and limit is not None and self._counts.count(token) >= limit

    @property
    def limit_message(self) -> str:
        return (
            f"This token has {self._max_per_token} event streams open, which is the limit. Close one, follow "
            "several runs with GET /v1/events, or raise server.streams_per_token in config.yaml."
        )

    def try_count(self, principal: Principal) -> bool:
        """Count one more open stream of a token, until `uncount`. Return False if it has as many as it may.

        The stream is counted before the limit is checked: two processes that check at once may both refuse, but
        never exceed the limit."""
        token, limit = principal.token_id, self._max_per_token
        if token is None:
            return True
        self._counts.add(token, 1)
        if limit is None or self._counts.count(token) <= limit:
            return True
        self._counts.add(token, -1)
        return False

    def uncount(self, principal: Principal) -> None:
        if principal.token_id is not None:
            self._counts.add(principal.token_id, -1)

    def add(self, stream: OpenStream) -> None:
        self._open.add(stream)
        if self.closed.is_set():  # it was requested before the listener closed
            self._end(stream)
        elif self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="treadle-heartbeats")

    def remove(self, stream: OpenStream) -> None:
        self._open.discard(stream)

    async def close(self) -> None:
        """End the streams whose readers reconnect and continue. The others may go on until the listener closes:
        their readers see that the stream broke off."""
        self.closed.set()
        if self._beating is not None:
            self._beating.cancel()
        for stream in tuple(self._open):
            self._end(stream)

    def _end(self, stream: OpenStream) -> None:
        if stream.will_reconnect:
            stream.cut()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_SECONDS)
            for stream in tuple(self._open):
                stream.beat()
