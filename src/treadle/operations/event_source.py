"""The events of runs as a client reads them, in this process or from another."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from treadle.domain.envelope import Event
from treadle.domain.events import StreamReset
from treadle.domain.ids import RunId


class EventSource(Protocol):
    """The events of runs."""

    def events(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Follow a run: the durable events after a sequence, the text being generated, then all that follows.

        It ends after `run_end`, or after a `stream_reset` if the reader was too slow."""
        ...

    def read_stored(self, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
        """Read the events of a run that are in its journal now."""
        ...


async def follow_without_resets(source: EventSource, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yield the events of a run up to its end, and continue after each reset."""
    last = after
    while True:
        cut_off = False
        async with aclosing(source.events(run_id, last)) as events:
            async for event in events:
                last = event.sequence if event.durable else last
                cut_off = isinstance(event.data, StreamReset)
                yield event
        if not cut_off:
            return
