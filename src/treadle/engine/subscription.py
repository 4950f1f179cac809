"""One reader's queue of events. Events are delivered at once, unless the process is overloaded."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic, thread_time
from typing import Protocol

from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError
from treadle.domain.events import RunEnd

MAX_BACKLOG_EVENTS = 10_000
"""Number of events that a reader may be behind before it is cut off."""
BUSY_DELAY_SECONDS = 0.004
"""Average delay in waking readers above which the process counts as overloaded."""
PAUSE_FACTOR, MAX_PAUSE_SECONDS = 32.0, 0.25
SAMPLE_SECONDS = 0.005
"""Minimum interval between two samples of the delay, since many readers are woken at once."""
WINDOW_SECONDS = 0.5
"""Older samples are forgotten."""
MAX_SAMPLE_WEIGHT, MAX_DELAY_SECONDS = 0.02, 0.1
"""The maximum weight and value of one sample: a process that was blocked once is not overloaded."""
LOAD_SAMPLE_SECONDS, IDLE_SHARE = 0.1, 0.5
"""An event loop that worked for less than `IDLE_SHARE` of the last `LOAD_SAMPLE_SECONDS` is not overloaded, even
if readers that are woken together wait for each other."""


class MemoryAccount(Protocol):
    """Counts the memory that a reader holds."""

    def hold(self, size: int) -> None:
        """Hold this many more bytes, or fewer if the number is negative."""
        ...

    def hold_events(self, events: Sequence[Event]) -> None:
        """Count events that the reader holds from now on."""
        ...

    def release_events(self, events: Sequence[Event]) -> None:
        """Count them no more."""
        ...


class _Uncounted:
    """Counts nothing."""

    def hold(self, size: int) -> None:
        pass

    def hold_events(self, events: Sequence[Event]) -> None:
        pass

    def release_events(self, events: Sequence[Event]) -> None:
        pass


UNCOUNTED: MemoryAccount = _Uncounted()
"""The account of readers within the process, which keep up with it."""


class Pace:
    """Measures how late the readers of a process are woken, which tells how loaded it is."""

    def __init__(self, cpu_seconds: Callable[[], float] = thread_time) -> None:
        self._delay = 0.0
        self._max_delay = 0.0
        self._sampled_at = 0.0
        self._cpu_seconds = cpu_seconds
        """Returns the CPU seconds of the event loop's thread."""
        self._is_idle = False
        self._load_sampled_at = (monotonic(), cpu_seconds())

    def record_delay(self, due: float, now: float) -> None:
        """Record that a reader that was due at one time is woken at another."""
        self._max_delay = max(self._max_delay, min(now - due, MAX_DELAY_SECONDS))
        since = now - self._sampled_at
        if since < SAMPLE_SECONDS:
            return
        if since >= WINDOW_SECONDS:
            self._delay = 0.0
        else:
            more = self._max_delay - self._delay
            self._delay += more * min(since / WINDOW_SECONDS, 1.0 if more < 0 else MAX_SAMPLE_WEIGHT)
        self._max_delay, self._sampled_at = 0.0, now

    def pause(self, now: float) -> float:
        """Return the number of seconds for which readers should let events gather."""
        if self._delay <= BUSY_DELAY_SECONDS or now - self._sampled_at >= WINDOW_SECONDS or self._check_idle(now):
            return 0.0
        return min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * self._delay)

    def _check_idle(self, now: float) -> bool:
        then, cpu_seconds_then = self._load_sampled_at
        if now - then >= LOAD_SAMPLE_SECONDS:
            cpu_seconds = self._cpu_seconds()
            self._is_idle = cpu_seconds - cpu_seconds_then < IDLE_SHARE * (now - then)
            self._load_sampled_at = (now, cpu_seconds)
        return self._is_idle


class Subscription:
    """One reader's queue. It ends with the run, or with a `stream_reset` if the reader was too slow."""

    def __init__(
        self,
        leave: Callable[["Subscription"], None],
        pace: Pace,
        backlog: int,
        gather_seconds: float,
        memory: MemoryAccount = UNCOUNTED,
    ) -> None:
        self._memory = memory
        self._taken: Sequence[Event] = ()
        """Events that the reader is processing."""
        self.last = 0
        """Sequence of the last durable event that the reader has or was offered. It reads missing earlier ones
        itself."""
        self._offered: int = 0
        """Sequence of the last durable event that was offered, whatever the reader has read itself."""
        self.catching_up = True
        """True while the reader reads what was committed before it came. New commits are offered meanwhile as
        well, once and in order, so that live text keeps its place between them."""
        self._leave = leave
        self._pace = pace
        self._backlog = backlog
        self._gather_seconds = gather_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._events: list[Event] = []
        self._due = 0.0
        """When the reader was due to be woken."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_cut_off = False
        self._error: StoreError | None = None

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(self)
        self._memory.release_events([*self._taken, *self._events])
        self._taken, self._events = (), []

    def offer(self, events: Sequence[Event]) -> None:
        """Give the reader durable events, in order."""
        offered = self._offered
        if events[0].sequence <= offered:  # offered before by this or another process
            events = [event for event in events if event.sequence > offered]
            if not events:
                return
        last = events[-1]
        self._offered = last.sequence
        self.last = max(self.last, last.sequence)
        self._add(events)
        now = monotonic()
        at_once = not self._gather_seconds or isinstance(last.data, RunEnd)  # the end of a run is never delayed
        self._schedule(now, 0.0 if at_once else self._pace.pause(now))

    def show(self, event: Event) -> None:
        """Give the reader a live event. A patient reader gets it together with those that follow."""
        self._add((event,))
        now = monotonic()
        self._schedule(now, self._gather_seconds and max(self._gather_seconds, self._pace.pause(now)))

    def _add(self, events: Sequence[Event]) -> None:
        if self._is_cut_off:
            return
        if len(self._events) + len(events) > self._backlog:
            self._is_cut_off = True
            dropped, self._events = self._events, []
            self._memory.release_events(dropped)
            return
        self._events += events
        self._memory.hold_events(events)

    def _schedule(self, now: float, seconds: float) -> None:
        """Wake the reader after some seconds. A reader that is woken less often gets more at a time."""
        if self._waiter is None:
            return  # the reader is busy and checks the queue itself
        if not seconds:
            self._wake(now)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake, now + seconds)

    def _wake(self, due: float) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._due = due
            self._waiter.set_result(None)

    def fail(self, error: StoreError) -> None:
        self._error = error
        self._wake(monotonic())

    async def take(self) -> Sequence[Event] | None:
        """Return all events so far, as soon as there are any, or None if the reader was cut off."""
        self._memory.release_events(self._taken)
        self._taken = ()
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._is_cut_off:
                return None
            await self._wait()
        self._taken, self._events = self._events, []
        return self._taken

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if self._gather_seconds:
            self._pace.record_delay(self._due, monotonic())
