"""Who is listening in this process: events after they are committed, live ones at once.

A reader that falls behind is cut off with a reset that it can resume from; a run never waits for a reader."""

import asyncio
import logging
from collections.abc import Callable, Generator, KeysView, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from treadle.domain.envelope import Draft, Event, Origin, draft
from treadle.domain.errors import StoreError
from treadle.domain.events import EventData, RunEnd, StreamReset, Token
from treadle.domain.ids import Instant, RunId
from treadle.engine.subscription import MAX_BACKLOG_EVENTS, Pace, Subscription
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

EndedRun = tuple[Origin, RunEnd]
Observer = Callable[[Origin, int, Sequence[Draft]], None]
"""Sees all that is committed, in the order of commits: whose, the sequence of the first, and the events. It must
not block, and what it raises is its own loss."""


class LiveText(Protocol):
    """Text that is being written now."""

    origin: Origin

    def so_far(self) -> Token:
        """All of it, from its beginning."""
        ...


class Listener(Protocol):
    """Reads runs in this process. Never blocks."""

    last: int
    """The last durable event that it has, or was offered."""
    catching_up: bool
    """It still reads what was committed before it came."""

    def offer(self, events: Sequence[Event]) -> None:
        """Give it durable events of one run, in their order."""
        ...

    def show(self, event: Event) -> None:
        """Give it a live event."""
        ...

    def fail(self, error: StoreError) -> None:
        """Nothing more will come."""
        ...


class OtherProcesses(Protocol):
    """Other processes that work on the same database. Never blocks."""

    def listen_to(self, run_id: RunId) -> bool:
        """Whether anybody there would see a live event of this run."""
        ...

    def show(self, event: Event) -> None:
        """Show them a live event, soon."""
        ...

    def hurry(self) -> None:
        """Show them now what has gathered."""
        ...

    def watch(self, run_id: RunId) -> None:
        """Somebody here has begun to read this run."""
        ...


class EventHub:
    """Implements `ports.journal.Publisher` for the readers and workers of this process."""

    def __init__(self, clock: Clock, ids: Ids, on_wake: Callable[[RunId, Instant], None]) -> None:
        self._clock = clock
        self._ids = ids
        self.on_wake = on_wake
        self._readers: dict[RunId, list[Listener]] = {}
        self._ends: dict[RunId, list[asyncio.Future[EndedRun]]] = {}
        self._error: StoreError | None = None
        self._pace = Pace()
        self._unfinished: set[RunId] = set()
        """Runs that were submitted here and have not ended."""
        self._owners: dict[RunId, Callable[[], None]] = {}
        self._placed: dict[RunId, int] = {}
        """How far this process has come with the runs that it owns."""
        self._speech: dict[RunId, LiveText] = {}
        self.observers: list[Observer] = []
        self.forgetting: list[Callable[[RunId], None]] = []
        """Told of runs that another process goes on with: what it commits they do not hear of."""
        self.taking: list[Callable[[Sequence[Event]], None]] = []
        """Told what is on record of a run when it is taken up here, so that they need not read it."""
        self._waiting: set[asyncio.Event] = set()
        self.changes = 0
        """How often something was committed, as far as is known here."""
        self.others: OtherProcesses | None = None
        """None: no other process can work on this database."""

    # ── What the journal tells ──

    def committed(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        self.changes += 1
        for waiting in self._waiting:
            waiting.set()
        for observer in self.observers:
            try:
                observer(origin, first, drafts)
            except Exception:
                logger.exception("an observer of events failed; the run goes on")
        readers = self._readers.get(origin.run_id)
        if readers and drafts:
            events = [
                Event(made.event_id, made.timestamp, origin, sequence, made.type, made.data, made.raw)
                for sequence, made in enumerate(drafts, first)
            ]
            for reader in tuple(readers):
                reader.offer(events)
        if origin.run_id in self._owners:
            self._placed[origin.run_id] = first + len(drafts) - 1
        if first == 1:
            self._unfinished.add(origin.run_id)
        if drafts and isinstance(end := drafts[-1].data, RunEnd):
            self._ended(origin, end)

    def _ended(self, origin: Origin, end: RunEnd) -> None:
        self._unfinished.discard(origin.run_id)
        for waiter in self._ends.pop(origin.run_id, ()):
            if not waiter.done():
                waiter.set_result((origin, end))

    def delivered(self, run_id: RunId) -> None:
        owner = self._owners.get(run_id)
        if owner is not None:
            owner()

    def wake(self, run_id: RunId, at: Instant) -> None:
        self.on_wake(run_id, at)

    def lost(self, error: StoreError) -> None:
        self._error = error
        for waiters in self._ends.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        for readers in self._readers.values():
            for reader in readers:
                reader.fail(error)
        for waiting in self._waiting:
            waiting.set()

    # ── What other processes tell ──

    def heard(self, events: Sequence[Event], known: int) -> None:
        """Other processes have committed these events of one run, or some of them: whoever here lacks one gets it.
        Those up to `known` were heard before. Observers are not told: those who see to runs that are worked on
        elsewhere are there."""
        if not events:
            return
        run_id = events[0].run_id
        for reader in tuple(self._readers.get(run_id, ())):
            if reader.catching_up and run_id in self._owners:
                continue  # what is said here has its place among what is committed here: the next look finds it
            after = known if reader.catching_up else reader.last
            if lacking := [event for event in events if event.sequence > after]:
                reader.offer(lacking)
        if isinstance(end := events[-1].data, RunEnd):
            self._ended(events[-1].origin, end)

    def changed_elsewhere(self, *run_ids: RunId) -> None:
        """Whoever waits for anything to be committed looks again; and whether the runs have ended is not known."""
        self._unfinished.difference_update(run_ids)
        self.changes += 1
        for waiting in self._waiting:
            waiting.set()

    def left_to_others(self, run_id: RunId) -> None:
        """Another process works on it."""
        if run_id not in self._owners:
            for forget in self.forgetting:
                forget(run_id)

    def overheard(self, event: Event) -> None:
        """A live event of a run that is worked on elsewhere."""
        for reader in tuple(self._readers.get(event.run_id, ())):
            reader.show(event)

    def watched(self) -> set[RunId]:
        """The runs that somebody here reads, or waits for the end of."""
        return {*self._readers, *self._ends}

    def read_here(self) -> set[RunId]:
        """The runs that somebody here reads."""
        return {*self._readers}

    def is_read(self, run_id: RunId) -> bool:
        return run_id in self._readers

    def is_watched(self, run_id: RunId) -> bool:
        return run_id in self._readers or run_id in self._ends

    def behind(self, run_id: RunId) -> int | None:
        """The last event that all readers of the run have, or were offered; None: nobody reads it, or whoever does
        still reads what was there before."""
        readers = self._readers.get(run_id, ())
        return min((reader.last for reader in readers if not reader.catching_up), default=None)

    def owned(self) -> KeysView[RunId]:
        """The runs that are worked on here."""
        return self._owners.keys()

    def committed_here(self, run_id: RunId) -> int:
        """The last event that this process has committed to a run which is worked on here; 0: none."""
        return self._placed.get(run_id, 0)

    def said_here(self, run_id: RunId) -> Event | None:
        """All of what is being said in a run that is worked on here; None: nothing is."""
        speech = self._speech.get(run_id) if run_id in self._owners else None
        if speech is None or not (said := speech.so_far()).text:
            return None
        return self.event(speech.origin, said.request, said)

    # ── What workers tell and ask ──

    def listened_to(self, run_id: RunId) -> bool:
        """Whether anybody would see a live event of this run."""
        return run_id in self._readers or (self.others is not None and self.others.listen_to(run_id))

    def live(self, origin: Origin, sequence: int, data: EventData) -> None:
        """Show a live event to whoever is listening now."""
        run_id = origin.run_id
        if not self.listened_to(run_id):
            return
        event = self.event(origin, sequence, data)
        self.overheard(event)
        if self.others is not None and self.others.listen_to(run_id):
            self.others.show(event)

    def speaking(self, run_id: RunId, speech: LiveText | None) -> None:
        """Remember the text in flight, so that a reader who comes late can be given it."""
        if speech is None:
            self._speech.pop(run_id, None)
            if self.others is not None:
                self.others.hurry()
        else:
            self._speech[run_id] = speech

    def on_delivery(self, run_id: RunId, tell: Callable[[], None]) -> None:
        """Have the owner of a run told whenever something is delivered to it."""
        self._owners[run_id] = tell

    def taken(self, events: Sequence[Event]) -> None:
        """A run is worked on here from now on, and this is all that is on record of it."""
        for take in self.taking:
            take(events)

    def let_go(self, run_id: RunId, tell: Callable[[], None]) -> None:
        """The owner that was to be told so is one no more."""
        if self._owners.get(run_id) == tell:
            del self._owners[run_id]
            self._placed.pop(run_id, None)
            self._speech.pop(run_id, None)

    # ── What readers ask ──

    def subscribe(self, run_id: RunId, backlog: int = MAX_BACKLOG_EVENTS, patience: float = 0.0) -> Subscription:
        """With patience, in seconds, live events are gathered for so long; durable ones wait only
        where the process is behind."""
        self.refuse_if_lost()
        reader = Subscription(partial(self.forget, run_id), self._pace, backlog, patience)
        self.listen(run_id, reader)
        return reader

    def listen(self, run_id: RunId, reader: Listener) -> None:
        """Have a reader told of what happens in a run, until it is forgotten."""
        self._readers.setdefault(run_id, []).append(reader)
        if self.others is not None:
            self.others.watch(run_id)

    def forget(self, run_id: RunId, reader: Listener) -> None:
        readers = self._readers.get(run_id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(run_id, None)

    @contextmanager
    def news(self) -> Generator[asyncio.Event]:
        """Set whenever anything is committed; whoever waits for it clears it, and asks whether all is lost."""
        waiting = asyncio.Event()
        self._waiting.add(waiting)
        try:
            yield waiting
        finally:
            self._waiting.discard(waiting)

    def refuse_if_lost(self) -> None:
        """Raise why nothing more will come, where nothing will."""
        if self._error is not None:
            raise self._error

    def end_of(self, run_id: RunId) -> "asyncio.Future[EndedRun]":
        """Done when the end of the run is committed; never, if that was before this call."""
        self.refuse_if_lost()
        waiter: asyncio.Future[EndedRun] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run_id, []).append(waiter)
        return waiter

    def forget_end(self, run_id: RunId, waiter: "asyncio.Future[EndedRun]") -> None:
        waiters = self._ends.get(run_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._ends.pop(run_id, None)

    def is_unfinished(self, run_id: RunId) -> bool:
        """Whether it is known here, without asking the journal, that the run has not ended."""
        return run_id in self._unfinished

    def text_in_flight(self, run_id: RunId) -> Token | None:
        speech = self._speech.get(run_id)
        return None if speech is None else speech.so_far()

    def event(self, origin: Origin, sequence: int, data: EventData) -> Event:
        """A live event for one reader."""
        made = draft(self._ids("evt"), self._clock.now(), data)
        return Event(made.event_id, made.timestamp, origin, sequence, made.type, data, made.raw)


def make_stream_reset(after: int) -> StreamReset:
    """What a reader that was cut off is told."""
    return StreamReset(after, f"The reader fell too far behind; subscribe again after {after}.")
