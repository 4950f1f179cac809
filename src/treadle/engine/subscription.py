"""What one reader of a run is given, and when: at once, unless the process has more to do than it can."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic, thread_time

from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError
from treadle.domain.events import RunEnd

MAX_BACKLOG_EVENTS = 10_000
"""How many events a reader may be behind before it is cut off."""
BUSY_DELAY_SECONDS = 0.004
"""A process whose readers are woken later than that, on the whole, has more to do than it can."""
PAUSE_FACTOR, MAX_PAUSE_SECONDS = 32.0, 0.25
SAMPLE_SECONDS = 0.005
"""Between two looks at how late the latest was: readers are woken many at a time."""
WINDOW_SECONDS = 0.5
"""What was before that is forgotten."""
MAX_SAMPLE_WEIGHT, MAX_DELAY_SECONDS = 0.02, 0.1
"""What one look can change, and what it can see: a process that was held up once is not busy."""
LOAD_SAMPLE_SECONDS, IDLE_SHARE = 0.1, 0.5
"""A loop that has worked less than this share of that time is not busy either, though many readers that are woken
together wait for each other."""


class Pace:
    """How late the readers of a process are woken, which tells how busy it is."""

    def __init__(self, worked: Callable[[], float] = thread_time) -> None:
        self._late = 0.0
        self._latest = 0.0
        self._looked_at = 0.0
        self._worked = worked
        """The seconds that the thread of the loop has worked so far."""
        self._is_idle = False
        self._worked_at = (monotonic(), worked())

    def tell(self, due: float, now: float) -> None:
        """A reader was to be woken then, and is woken now."""
        self._latest = max(self._latest, min(now - due, MAX_DELAY_SECONDS))
        since = now - self._looked_at
        if since < SAMPLE_SECONDS:
            return
        if since >= WINDOW_SECONDS:
            self._late = 0.0
        else:
            more = self._latest - self._late
            self._late += more * min(since / WINDOW_SECONDS, 1.0 if more < 0 else MAX_SAMPLE_WEIGHT)
        self._latest, self._looked_at = 0.0, now

    def pause(self, now: float) -> float:
        """For how many seconds readers should let things gather."""
        if self._late <= BUSY_DELAY_SECONDS or now - self._looked_at >= WINDOW_SECONDS or self._idle(now):
            return 0.0
        return min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * self._late)

    def _idle(self, now: float) -> bool:
        then, worked_then = self._worked_at
        if now - then >= LOAD_SAMPLE_SECONDS:
            worked = self._worked()
            self._is_idle = worked - worked_then < IDLE_SHARE * (now - then)
            self._worked_at = (now, worked)
        return self._is_idle


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
        self._due = 0.0
        """When it was to be woken."""
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
        self._add(events)
        now = monotonic()
        at_once = not self._patience or isinstance(last.data, RunEnd)  # no end is kept from those who wait for it
        self._call(now, 0.0 if at_once else self._pace.pause(now))

    def show(self, event: Event) -> None:
        """A live event, which waits a moment for more, where the reader is patient."""
        self._add((event,))
        now = monotonic()
        self._call(now, self._patience and max(self._patience, self._pace.pause(now)))

    def _add(self, events: Sequence[Event]) -> None:
        if self._cut:
            return
        if len(self._events) + len(events) > self._backlog:
            self._cut = True
            self._events.clear()
        else:
            self._events += events

    def _call(self, now: float, seconds: float) -> None:
        """Wake the reader, in so many seconds: one that is woken less often is given more at a time."""
        if self._waiting is None:
            return  # the reader is busy, and looks by itself
        if not seconds:
            self._ring(now)
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(seconds, self._ring, now + seconds)

    def _ring(self, due: float) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._due = due
            self._waiting.set_result(None)

    def fail(self, error: StoreError) -> None:
        self._error = error
        self._ring(monotonic())

    async def take(self) -> Sequence[Event] | None:
        """All that has come, as soon as anything has; None, and nothing more, when the reader was cut off."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._cut:
                return None
            await self._wait()
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
        if self._patience:
            self._pace.tell(self._due, monotonic())
