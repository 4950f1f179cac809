"""What one reader of a run is given, and when: at once, unless the process has more to do than it can."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError
from treadle.domain.events import RunEnd

BACKLOG = 10_000
"""How many events a reader may be behind before it is cut off."""
BUSY_SECONDS = 0.004
"""A process whose readers are woken later than that, on the whole, has more to do than it can."""
LATEST_SHARE, PAUSES, LONGEST_PAUSE = 0.05, 32.0, 0.25


class Pace:
    """How late the readers of a process are woken, which tells how busy it is."""

    def __init__(self) -> None:
        self._late = 0.0

    def late(self, seconds: float) -> float:
        """A reader was woken so much later than it was called; for how many seconds it should let things gather."""
        self._late += LATEST_SHARE * (seconds - self._late)
        return min(LONGEST_PAUSE, PAUSES * self._late) if self._late > BUSY_SECONDS else 0.0


class Subscription:
    """One reader's queue. It ends with the run, or with a `stream_reset` when the reader was too slow."""

    def __init__(self, leave: Callable[["Subscription"], None], pace: Pace, backlog: int, patience: float) -> None:
        self.last = 0
        """The last durable event that the reader has, or was offered; those before it that it lacks it reads."""
        self._offered: int = 0
        """The last durable event that it was offered, whatever it has read by itself."""
        self.catching_up = True
        """It still reads what was there before it came. What is committed meanwhile it is offered as well, once
        and in its place: so it knows what was said before that."""
        self._leave = leave
        self._pace = pace
        self._backlog = backlog
        self._patience = patience
        self._later: asyncio.TimerHandle | None = None
        self._events: list[Event] = []
        self._rung_at = 0.0
        self._resting = False
        self._waiting: asyncio.Future[None] | None = None
        self._cut = False
        self._error: StoreError | None = None

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self)

    def offer(self, events: Sequence[Event]) -> None:
        """Durable events, in their order."""
        offered = self._offered
        if events[0].sequence <= offered:  # heard of from elsewhere before, or the other way round
            events = [event for event in events if event.sequence > offered]
            if not events:
                return
        last = events[-1]
        self._offered = last.sequence
        self.last = max(self.last, last.sequence)
        self._add(events, not self._resting or isinstance(last.data, RunEnd))

    def show(self, event: Event) -> None:
        """A live event, which waits a moment for more, where the reader is patient."""
        self._add((event,), False)

    def _add(self, events: Sequence[Event], urgent: bool) -> None:
        if self._cut:
            return
        if len(self._events) + len(events) > self._backlog:
            self._cut = True
            self._events.clear()
        else:
            self._events += events
        if self._waiting is None:
            return  # the reader is busy, and looks by itself
        if urgent or not self._patience:
            self._ring()
        elif self._later is None:
            self._ring_in(self._patience)

    def _ring(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._rung_at = monotonic()
            self._waiting.set_result(None)

    def _ring_in(self, seconds: float) -> None:
        self._later = asyncio.get_running_loop().call_later(seconds, self._ring)

    def fail(self, error: StoreError) -> None:
        self._error = error
        self._ring()

    async def take(self) -> Sequence[Event] | None:
        """All that has come, as soon as anything has; None, and nothing more, when the reader was cut off. Where
        the process is behind with its work a patient reader waits for more: it is woken less often for the same."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._cut:
                return None
            await self._wait()
            if self._patience and (pause := self._pace.late(monotonic() - self._rung_at)):
                await self._rest(pause)
        events, self._events = self._events, []
        return events

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
            if self._later is not None:
                self._later.cancel()
                self._later = None

    async def _rest(self, seconds: float) -> None:
        """Let more come; but an end is not kept from those who wait for it."""
        if self._events and not isinstance(self._events[-1].data, RunEnd):
            self._resting = True
            self._ring_in(seconds)
            try:
                await self._wait()
            finally:
                self._resting = False
